// Collective operations between ranks. A world of one is the default; results never depend on arrival order.
// Not here: which data is exchanged (model, engine), vendor runtimes (opened at run time by their implementation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace deepinfer::comm {

/// One rank's door to the others. Every rank calls the same operations in the same order. Host memory.
class Collective {
 public:
  virtual ~Collective() = default;
  [[nodiscard]] virtual std::int32_t rank() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;
  virtual void barrier() = 0;
  /// Everybody's `mine` (equal lengths) side by side in rank order: `all` has size() * mine.size() bytes.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Part r of `send` goes to rank r; part r of `receive` comes from it. Equal parts: lengths are multiples of size().
  virtual void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) = 0;
};

/// Smallest and sum of one value per rank, evaluated in rank order on every rank, so that all agree to the bit.
[[nodiscard]] std::int64_t all_reduce_min(Collective& collective, std::int64_t mine);
[[nodiscard]] double all_reduce_sum(Collective& collective, double mine);

/// Rank 0's data for every rank. Equal lengths.
void broadcast(Collective& collective, std::span<std::byte> data);

/// A world of one.
[[nodiscard]] std::unique_ptr<Collective> make_solo();

/// A world of `size` ranks inside this process, one thread each. The ranks share state that lives as long as any of them.
[[nodiscard]] std::vector<std::unique_ptr<Collective>> make_thread_world(std::int32_t size);

}  // namespace deepinfer::comm

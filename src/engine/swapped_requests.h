// Caches of preempted requests in host memory, bounded: kept when it is cheaper to bring them back than to compute their tokens again.
// Not here: who is preempted and when it goes on (scheduler).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/prefix_tiers.h"

namespace deepinfer::engine {

struct SwapStats {
  std::int64_t num_saved = 0;     ///< preempted requests whose cache was kept
  std::int64_t num_restored = 0;  ///< of these, that went on from it
  std::size_t num_bytes = 0;      ///< now
};

class SwappedRequests {
 public:
  /// Off when max_bytes is 0.
  SwappedRequests(CacheCalls calls, std::size_t max_bytes) : calls_(std::move(calls)), max_bytes_(max_bytes) {}

  [[nodiscard]] bool is_on() const { return max_bytes_ > 0; }
  /// Whether there is room, and moving there and back takes less time than computing, which would take `computing`; zero: not known. How
  /// fast bytes move is measured with every move.
  [[nodiscard]] bool is_worth_saving(std::size_t num_blocks, Duration computing) const;
  void save(RequestId request, SlotId slot, std::span<const BlockId> blocks, const Clock& clock);
  /// Puts back and forgets what was saved: into the first blocks, as many as were saved.
  void restore(RequestId request, SlotId slot, std::span<const BlockId> blocks, const Clock& clock);
  /// Nothing happens when nothing is kept.
  void forget(RequestId request);
  [[nodiscard]] SwapStats stats() const { return stats_; }

 private:
  struct Contents {
    std::vector<std::byte> bytes;  // the state, then the blocks
    std::size_t num_blocks = 0;
  };

  [[nodiscard]] std::size_t num_bytes(std::size_t num_blocks) const { return calls_.state_bytes + num_blocks * calls_.block_bytes; }
  void measure(Duration time, std::size_t num_bytes);

  CacheCalls calls_;
  std::size_t max_bytes_ = 0;
  double seconds_per_byte_ = 0;  // recent mean; 0: not known
  std::unordered_map<RequestId, Contents> contents_;
  SwapStats stats_;
};

}  // namespace deepinfer::engine

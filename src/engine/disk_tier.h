// Cached prefixes as files of one directory, bounded in size. A file is written under another name and renamed, and carries a checksum:
// after a crash, on a full disk or with a damaged file a prefix is absent, never wrong. Not here: which prefixes go there (prefix_store.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kvcache/block_hash.h"

namespace deepinfer::engine {

/// What is stored of a prefix: the block at its end, or the bounded state behind it.
enum class PrefixPart : std::uint8_t { block, state };

struct PrefixKey {
  kvcache::BlockHash prefix;
  PrefixPart part = PrefixPart::block;

  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

struct PrefixKeyHash {
  std::size_t operator()(const PrefixKey& key) const noexcept { return key.prefix.words[0] + static_cast<std::size_t>(key.part); }
};

class DiskTier {
 public:
  /// Files lie in a folder of `directory` named after `owner`, which stands for everything the bytes depend on (model, device, version).
  /// What an earlier process left there is found again, the least recently used first to go. Errors: io.
  static Result<DiskTier> open(const std::filesystem::path& directory, const std::string& owner, std::size_t max_bytes);

  [[nodiscard]] bool contains(const PrefixKey& key) const { return entries_.contains(key); }
  /// False, and nothing left behind, when the system refuses or the bytes exceed the bound alone. Older files make room.
  bool write(const PrefixKey& key, std::span<const std::byte> bytes);
  /// nullopt, and the file is gone, when it is damaged.
  [[nodiscard]] std::optional<std::vector<std::byte>> read(const PrefixKey& key);

  /// Everything that is there.
  [[nodiscard]] std::vector<PrefixKey> keys() const { return {order_.begin(), order_.end()}; }
  /// What has gone since the last call, for whatever reason.
  [[nodiscard]] std::vector<PrefixKey> take_removed() { return std::exchange(removed_, {}); }
  [[nodiscard]] std::size_t num_files() const { return entries_.size(); }
  [[nodiscard]] std::size_t num_bytes() const { return num_bytes_; }

 private:
  using Order = std::list<PrefixKey>;  // least recently used first
  struct Entry {
    std::size_t num_bytes = 0;  // of the file
    Order::iterator place;
  };

  DiskTier(std::filesystem::path folder, std::size_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {}
  void find_files();
  [[nodiscard]] std::filesystem::path path_of(const PrefixKey& key) const;
  void add(const PrefixKey& key, std::size_t num_bytes);
  void remove(const PrefixKey& key);

  std::filesystem::path folder_;
  std::size_t max_bytes_ = 0;
  std::size_t num_bytes_ = 0;
  Order order_;
  std::unordered_map<PrefixKey, Entry, PrefixKeyHash> entries_;
  std::vector<PrefixKey> removed_;
};

}  // namespace deepinfer::engine

// Engram row numbers: which table rows an n-gram of token classes reads (docs/spec/model.md 5.6.2, 5.6.3).
// A pure function of token ids; the tables themselves are looked up by the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/deepseek_v41/config.h"

namespace deepinfer::model {

/// Draws of numpy's default_rng(seed).integers(0, bound): PCG64 seeded through SeedSequence, Lemire's bounded draw.
/// `bound` must exceed 2^32, where numpy uses its 64-bit path.
[[nodiscard]] std::vector<std::uint64_t> numpy_integers(std::uint32_t seed, std::uint64_t bound, std::int32_t count);

/// The constants and row numbers of all Engram layers of one model.
class EngramHash {
 public:
  /// A table: its rows, which are prime, and what lies before them.
  struct Column {
    std::uint64_t prime = 0;
    std::uint64_t inverse = 0;  // floor(2^64 / prime)
    std::uint64_t offset = 0;   // sum of the primes before
  };
  /// One Engram layer: odd multipliers per n-gram position, and its tables.
  struct Layer {
    std::vector<std::uint64_t> multiplier;  // [max_ngram]
    std::vector<Column> columns;            // n = 2 heads, n = 3 heads, …
    [[nodiscard]] std::int64_t num_rows() const;
  };

  /// Class of a token that lies inside an image span: it and everything before it count as padding.
  static constexpr std::int32_t kImageClass = -1;

  EngramHash(const Config& config, std::vector<std::int32_t> class_of);

  [[nodiscard]] std::int32_t class_of(std::int32_t token) const { return class_of_[static_cast<std::size_t>(token)]; }
  [[nodiscard]] const Layer& layer(std::size_t index) const { return layers_[index]; }
  [[nodiscard]] std::size_t num_layers() const { return layers_.size(); }
  [[nodiscard]] std::int32_t num_columns() const { return num_columns_; }
  /// Tokens before a token that its row numbers depend on.
  [[nodiscard]] std::int32_t lookback() const { return max_ngram_ - 1; }

  /// Row numbers of the last token of `classes` (oldest first, at most lookback() + 1 used; fewer means start of text).
  /// `rows` has num_columns() entries.
  void rows(std::size_t layer_index, std::span<const std::int32_t> classes, std::span<std::int32_t> rows) const;

 private:
  std::int32_t max_ngram_ = 0;
  std::int32_t heads_ = 0;
  std::int32_t num_columns_ = 0;
  std::int32_t pad_class_ = 0;
  std::vector<std::int32_t> class_of_;
  std::vector<Layer> layers_;
};

}  // namespace deepinfer::model

#include "model/deepseek_v41/engram_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"

namespace deepinfer::model {

namespace {

__extension__ using Uint128 = unsigned __int128;

/// numpy's SeedSequence for an entropy of one 32-bit word: four 64-bit words of state.
std::array<std::uint64_t, 4> seed_sequence_state(std::uint32_t entropy) {
  constexpr std::size_t kPool = 4;
  constexpr std::uint32_t kMultA = 0x931E8875U;
  constexpr std::uint32_t kMultB = 0x58F38DEDU;
  std::array<std::uint32_t, kPool> pool{};
  std::uint32_t hash_constant = 0x43B0D7E5U;
  const auto hashed = [&hash_constant](std::uint32_t value, std::uint32_t multiplier) {
    value ^= hash_constant;
    hash_constant *= multiplier;
    value *= hash_constant;
    return value ^ value >> 16;
  };
  for (std::size_t i = 0; i < kPool; ++i) {
    pool[i] = hashed(i == 0 ? entropy : 0U, kMultA);
  }
  for (std::size_t source = 0; source < kPool; ++source) {
    for (std::size_t target = 0; target < kPool; ++target) {
      if (source != target) {
        const std::uint32_t mixed = 0xCA01F9DDU * pool[target] - 0x4973F715U * hashed(pool[source], kMultA);
        pool[target] = mixed ^ mixed >> 16;
      }
    }
  }
  hash_constant = 0x8B51F9DDU;
  std::array<std::uint64_t, 4> state{};
  for (std::size_t i = 0; i < 2 * state.size(); ++i) {
    state[i / 2] |= static_cast<std::uint64_t>(hashed(pool[i % kPool], kMultB)) << (i % 2 == 0 ? 0 : 32);
  }
  return state;
}

/// PCG64 (XSL-RR 128/64), seeded as numpy seeds it.
class Pcg64 {
 public:
  explicit Pcg64(const std::array<std::uint64_t, 4>& seed) {
    increment_ = (static_cast<Uint128>(seed[2]) << 64 | seed[3]) << 1 | 1U;
    step();
    state_ += static_cast<Uint128>(seed[0]) << 64 | seed[1];
    step();
  }

  std::uint64_t next() {
    step();
    const auto rotation = static_cast<int>(state_ >> 122);
    return std::rotr(static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_), rotation);
  }

 private:
  void step() {
    constexpr Uint128 kMultiplier = static_cast<Uint128>(2549297995355413924ULL) << 64 | 4865540595714422341ULL;
    state_ = state_ * kMultiplier + increment_;
  }

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

/// rows[i] = value mod prime + offset of column i. A product with floor(2^64 / prime) gives the quotient or one less.
void fill_rows(std::uint64_t value, std::span<const EngramHash::Column> columns, std::span<std::int32_t> rows) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const EngramHash::Column& column = columns[i];
    const auto quotient = static_cast<std::uint64_t>(static_cast<Uint128>(value) * column.inverse >> 64);
    const std::uint64_t rest = value - quotient * column.prime;
    rows[i] = static_cast<std::int32_t>(std::min(rest, rest - column.prime) + column.offset);  // rest - prime wraps around below the prime
  }
}

}  // namespace

std::vector<std::uint64_t> numpy_integers(std::uint32_t seed, std::uint64_t bound, std::int32_t count) {
  check(bound > std::numeric_limits<std::uint32_t>::max(), "numpy draws 64-bit words only for bounds above 2^32");
  Pcg64 random(seed_sequence_state(seed));
  std::vector<std::uint64_t> out;
  for (std::int32_t i = 0; i < count; ++i) {
    Uint128 product = static_cast<Uint128>(random.next()) * bound;
    const std::uint64_t threshold = (0 - bound) % bound;  // 2^64 mod bound
    while (static_cast<std::uint64_t>(product) < threshold) {
      product = static_cast<Uint128>(random.next()) * bound;
    }
    out.push_back(static_cast<std::uint64_t>(product >> 64));
  }
  return out;
}

std::int64_t EngramHash::Layer::num_rows() const {
  return columns.empty() ? 0 : static_cast<std::int64_t>(columns.back().offset + columns.back().prime);
}

EngramHash::EngramHash(const Config& config, std::vector<std::int32_t> class_of)
    : max_ngram_(config.engram_max_ngram_size),
      heads_(config.engram_n_heads),
      num_columns_(config.engram_lookups()),
      class_of_(std::move(class_of)) {
  if (config.engram_layer_ids.empty()) {
    return;
  }
  pad_class_ = class_of_.at(static_cast<std::size_t>(config.engram_pad_token_id));
  const auto num_classes = static_cast<std::uint64_t>(config.engram_compressed_vocab_size);
  const std::uint64_t bound = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / num_classes / 2;
  const std::vector<std::vector<std::int32_t>> primes = engram_primes(config);
  for (std::size_t index = 0; index < primes.size(); ++index) {
    Layer layer;
    const auto seed = 10007U * static_cast<std::uint32_t>(config.engram_layer_ids[index]);
    for (const std::uint64_t draw : numpy_integers(seed, bound, max_ngram_)) {
      layer.multiplier.push_back(2 * draw + 1);
    }
    std::uint64_t offset = 0;
    for (const std::int32_t prime : primes[index]) {
      const auto size = static_cast<std::uint64_t>(prime);
      layer.columns.push_back({.prime = size, .inverse = std::numeric_limits<std::uint64_t>::max() / size, .offset = offset});
      offset += size;
    }
    layers_.push_back(std::move(layer));
  }
}

void EngramHash::rows(std::size_t layer_index, std::span<const std::int32_t> classes, std::span<std::int32_t> rows) const {
  const Layer& layer = layers_[layer_index];
  bool is_blocked = false;
  std::uint64_t mixed = 0;
  for (std::int32_t back = 0; back < max_ngram_; ++back) {
    const auto available = static_cast<std::int32_t>(classes.size());
    is_blocked = is_blocked || back >= available || classes[static_cast<std::size_t>(available - 1 - back)] == kImageClass;
    const std::int32_t id = is_blocked ? pad_class_ : classes[static_cast<std::size_t>(available - 1 - back)];
    mixed ^= static_cast<std::uint64_t>(id) * layer.multiplier[static_cast<std::size_t>(back)];
    if (back > 0) {
      const auto first = static_cast<std::size_t>((back - 1) * heads_);
      const auto heads = static_cast<std::size_t>(heads_);
      fill_rows(mixed, std::span(layer.columns).subspan(first, heads), rows.subspan(first, heads));
    }
  }
}

}  // namespace deepinfer::model

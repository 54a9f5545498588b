#include "model/deepseek_v41/config.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "base/check.h"

namespace deepinfer::model {

namespace {

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

std::optional<std::int32_t> place_of(const std::vector<std::int32_t>& ids, std::int32_t id) {
  const auto at = std::ranges::find(ids, id);
  return at == ids.end() ? std::nullopt : std::optional(static_cast<std::int32_t>(at - ids.begin()));
}

/// Largest source <= layer.
std::int32_t source_of(const std::vector<std::int32_t>& sources, std::int32_t layer) {
  const auto after = std::ranges::upper_bound(sources, layer);
  check(after != sources.begin(), "a layer that reads compressed rows has a source");
  return *std::prev(after);
}

/// Trial division by the primes found so far: exact, and fast enough for the few dozen primes a model needs.
bool is_prime(std::int32_t n, const std::vector<std::int32_t>& small_primes) {
  for (const std::int32_t p : small_primes) {
    if (static_cast<std::int64_t>(p) * p > n) {
      break;
    }
    if (n % p == 0) {
      return false;
    }
  }
  return n >= 2;
}

/// All primes whose square does not exceed the largest 32-bit number.
std::vector<std::int32_t> primes_for_trial_division() {
  constexpr std::int32_t kRoot = 46341;
  std::vector<std::int32_t> out;
  for (std::int32_t n = 2; n <= kRoot; ++n) {
    if (is_prime(n, out)) {
      out.push_back(n);
    }
  }
  return out;
}

}  // namespace

std::int32_t Config::ratio(std::int32_t layer) const { return compress_ratios[static_cast<std::size_t>(layer)]; }

std::int32_t Config::split_layer() const {
  return static_cast<std::int32_t>(std::ranges::find(compress_ratios, 1) - compress_ratios.begin());
}

bool Config::is_kv_source(std::int32_t layer) const { return contains(kv_source_layer_ids, layer); }
bool Config::is_index_source(std::int32_t layer) const { return contains(index_source_layer_ids, layer); }
bool Config::is_candidate_source(std::int32_t layer) const { return candidate_source_layer_id == layer; }

std::int32_t Config::kv_source(std::int32_t layer) const {
  check(ratio(layer) > 0, "only layers of ratio > 0 read compressed rows");
  return source_of(kv_source_layer_ids, layer);
}

std::int32_t Config::index_source(std::int32_t layer) const {
  check(ratio(layer) > 0, "only layers of ratio > 0 read compressed rows");
  return source_of(index_source_layer_ids, layer);
}

bool Config::uses_candidates(std::int32_t layer) const {
  return candidate_source_layer_id && layer > *candidate_source_layer_id && is_index_source(layer) &&
         kv_source(layer) == kv_source(*candidate_source_layer_id);
}

std::optional<std::int32_t> Config::engram_place(std::int32_t layer) const { return place_of(engram_layer_ids, layer); }
std::optional<std::int32_t> Config::tap_place(std::int32_t layer) const { return place_of(dspark_target_layer_ids, layer); }

std::int32_t Config::num_experts(std::int32_t layer) const { return is_drafter(layer) ? dspark_n_routed_experts : n_routed_experts; }

std::int32_t Config::experts_per_token(std::int32_t layer) const {
  return is_drafter(layer) ? dspark_num_experts_per_tok : num_experts_per_tok;
}

bool Config::allows_bounded_replay() const { return engram_layer_ids.empty() || engram_layer_ids.back() < split_layer(); }

Result<Config> load_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return fail(ErrorKind::not_found, path.string() + " does not exist: give the directory of a checkpoint");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || file.bad()) {
    return fail(ErrorKind::io, path.string() + " cannot be read");
  }
  return parse_config_text(text, path.string());
}

std::vector<std::vector<std::int32_t>> engram_primes(const Config& config) {
  std::vector<std::vector<std::int32_t>> out(config.engram_layer_ids.size());
  const std::vector<std::int32_t> small_primes = primes_for_trial_division();
  std::int32_t candidate = config.engram_vocab_size - 1;
  for (std::vector<std::int32_t>& primes : out) {
    while (primes.size() < static_cast<std::size_t>(config.engram_lookups())) {
      if (is_prime(++candidate, small_primes)) {
        primes.push_back(candidate);
      }
    }
  }
  return out;
}

}  // namespace deepinfer::model

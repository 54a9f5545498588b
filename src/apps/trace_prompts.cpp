#include "apps/trace_prompts.h"

#include <algorithm>

namespace deepinfer::apps {
namespace {

/// SplitMix64's finisher over both words.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15 + b + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Beyond the ids of a trace, which are counts.
constexpr std::uint64_t kOwnText = std::uint64_t{1} << 62;

}  // namespace

ScaledRequest scaled_request(const TraceRequest& request, std::size_t index, const TraceScale& scale) {
  ScaledRequest out;
  out.num_output = std::clamp(request.num_output / scale.divisor, 1, scale.max_total - 1);
  const std::int32_t wanted = std::max(1, request.num_prompt / scale.divisor);
  const std::int32_t num_prompt = std::min(wanted, scale.max_total - out.num_output);
  out.was_cut = num_prompt < wanted;
  out.prompt.reserve(static_cast<std::size_t>(num_prompt));
  for (std::int32_t i = 0; i < num_prompt; ++i) {
    const auto hash = static_cast<std::size_t>(std::int64_t{i} * scale.divisor / kTokensPerHash);
    const std::uint64_t text = hash < request.hash_ids.size() ? static_cast<std::uint64_t>(request.hash_ids[hash]) : kOwnText + index;
    const std::uint64_t bits = mix(text, static_cast<std::uint64_t>(i));
    out.prompt.push_back({static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(scale.vocab_size))});
  }
  return out;
}

}  // namespace deepinfer::apps

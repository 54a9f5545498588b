#include "server/request_extras.h"

#include <charconv>
#include <chrono>
#include <limits>
#include <string>

#include "server/member_reader.h"

namespace deepinfer::server {
namespace {

constexpr double kMaxPenalty = 2.0;  // of the OpenAI API
constexpr double kMaxBias = 100.0;   // of the OpenAI API
constexpr double kMaxRepetitionPenalty = 10.0;
/// More entries than a person writes; a bound on the work per token.
constexpr std::size_t kMaxBiases = 1024;

std::optional<TokenId> token_id(std::string_view text) {
  std::int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc{} && end == text.data() + text.size() && id >= 0 ? std::optional(TokenId{id}) : std::nullopt;
}

void read_bias(MemberReader& members, sampling::Adjustments& adjustments) {
  const json::Value* const value = members.find("logit_bias");
  if (value == nullptr) {
    return;
  }
  const json::Object* const entries = value->as_object();
  if (entries == nullptr) {
    members.refuse("'logit_bias' must be an object of token ids and numbers");
    return;
  }
  if (entries->size() > kMaxBiases) {
    members.refuse("'logit_bias' has " + std::to_string(entries->size()) + " entries; at most " + std::to_string(kMaxBiases) +
                   " are allowed");
    return;
  }
  for (const auto& [key, bias] : *entries) {
    const std::optional<TokenId> token = token_id(key);
    if (!token) {
      members.refuse("'logit_bias' has a key that is no token id");
      return;
    }
    MemberReader entry(*value);
    const std::optional<double> number = entry.number(key, -kMaxBias, kMaxBias);
    if (!number) {
      members.refuse("Invalid logit_bias of token " + key + ", the valid range is [-100, 100]");
      return;
    }
    adjustments.bias.push_back({.token = *token, .bias = static_cast<float>(*number)});
  }
}

void read_scheduling(MemberReader& members, RequestExtras& out) {
  constexpr double kDay = 86400;
  out.priority = static_cast<std::int32_t>(members.integer("priority", -kMaxPriority, kMaxPriority).value_or(0));
  if (const std::optional<double> seconds = members.number("time_limit", 0.0, kDay)) {
    out.time_limit = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
    if (out.time_limit == Duration{}) {
      members.refuse("'time_limit' must be more than 0 seconds; leave it out for no limit");
    }
  }
  const std::string_view salt = members.text("cache_salt").value_or("");
  if (salt.size() > kMaxSaltBytes) {
    members.refuse("'cache_salt' has " + std::to_string(salt.size()) + " bytes; at most " + std::to_string(kMaxSaltBytes) + " are allowed");
  }
  out.cache_salt = salt;
}

}  // namespace

Result<RequestExtras> read_extras(const json::Value& body) {
  MemberReader members(body);
  RequestExtras out;
  const auto top_k = members.integer("top_k", -1, std::numeric_limits<std::int32_t>::max()).value_or(-1);
  out.sampling.top_k = top_k == 0 ? -1 : static_cast<std::int32_t>(top_k);
  out.sampling.min_p = members.number("min_p", 0.0, 1.0).value_or(0.0);
  sampling::Adjustments& adjustments = out.sampling.adjustments;
  adjustments.presence_penalty = static_cast<float>(members.number("presence_penalty", -kMaxPenalty, kMaxPenalty).value_or(0.0));
  adjustments.frequency_penalty = static_cast<float>(members.number("frequency_penalty", -kMaxPenalty, kMaxPenalty).value_or(0.0));
  constexpr double kLeastRepetitionPenalty = 0.01;
  adjustments.repetition_penalty =
      static_cast<float>(members.number("repetition_penalty", kLeastRepetitionPenalty, kMaxRepetitionPenalty).value_or(1.0));
  read_bias(members, adjustments);
  out.ignore_eos = members.boolean("ignore_eos").value_or(false);
  using Seed = std::numeric_limits<std::int64_t>;
  if (const auto seed = members.integer("seed", Seed::min(), Seed::max())) {
    out.seed = static_cast<std::uint64_t>(*seed);
  }
  out.num_choices = static_cast<std::int32_t>(members.integer("n", 1, kMaxChoices).value_or(1));
  read_scheduling(members, out);
  if (Result<void> result = members.result(); !result) {
    return std::unexpected(std::move(result.error()));
  }
  return out;
}

}  // namespace deepinfer::server

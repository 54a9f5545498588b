// The order of the checks is that of the request's fields; the first problem is the answer.
#include "engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace deepinfer::engine {
namespace {

std::unexpected<Error> refuse(std::string message) { return fail(ErrorKind::invalid_argument, std::move(message)); }

Result<void> check_prompt(const std::vector<TokenId>& prompt, const RequestLimits& limits) {
  if (prompt.empty()) {
    return refuse("the prompt is empty; give at least one token");
  }
  if (prompt.size() > static_cast<std::size_t>(limits.max_model_len)) {
    return refuse("the prompt has " + std::to_string(prompt.size()) + " tokens, but the context holds " +
                  std::to_string(limits.max_model_len) + "; shorten it by " +
                  std::to_string(prompt.size() - static_cast<std::size_t>(limits.max_model_len)));
  }
  const auto outside = std::ranges::find_if(prompt, [&](TokenId id) { return id.value < 0 || id.value >= limits.vocab_size; });
  if (outside != prompt.end()) {
    return refuse("token " + std::to_string(outside - prompt.begin()) + " of the prompt is " + std::to_string(outside->value) +
                  "; token ids go from 0 to " + std::to_string(limits.vocab_size - 1));
  }
  return {};
}

Result<void> check_sampling(const SamplingParams& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0.0) {
    return refuse("temperature is " + std::to_string(sampling.temperature) + "; it must be a number of at least 0");
  }
  if (!(sampling.top_p > 0.0 && sampling.top_p <= 1.0)) {
    return refuse("top_p is " + std::to_string(sampling.top_p) + "; it must be above 0 and at most 1");
  }
  if (sampling.top_k != -1 && sampling.top_k < 1) {
    return refuse("top_k is " + std::to_string(sampling.top_k) + "; it must be at least 1, or -1 for all tokens");
  }
  if (!(sampling.min_p >= 0.0 && sampling.min_p <= 1.0)) {
    return refuse("min_p is " + std::to_string(sampling.min_p) + "; it must be from 0 to 1");
  }
  if (sampling.num_top_logprobs < 0 || sampling.num_top_logprobs > kMaxTopLogprobs) {
    return refuse("the number of top log probabilities is " + std::to_string(sampling.num_top_logprobs) + "; it must be from 0 to " +
                  std::to_string(kMaxTopLogprobs));
  }
  return {};
}

Result<void> check_adjustments(const sampling::Adjustments& adjustments, const RequestLimits& limits) {
  const float repetition = adjustments.repetition_penalty;
  if (!(repetition > 0.0F) || !std::isfinite(repetition)) {
    return refuse("repetition_penalty is " + std::to_string(repetition) + "; it must be a number above 0");
  }
  if (!std::isfinite(adjustments.presence_penalty) || !std::isfinite(adjustments.frequency_penalty)) {
    return refuse("presence_penalty and frequency_penalty must be finite numbers");
  }
  for (const sampling::LogitBias& entry : adjustments.bias) {
    if (entry.token.value < 0 || entry.token.value >= limits.vocab_size) {
      return refuse("logit_bias names token " + std::to_string(entry.token.value) + "; token ids go from 0 to " +
                    std::to_string(limits.vocab_size - 1));
    }
    if (!std::isfinite(entry.bias)) {
      return refuse("the logit_bias of token " + std::to_string(entry.token.value) + " must be a finite number");
    }
  }
  return {};
}

Result<void> check_constraint(const Constraint& constraint, const RequestLimits& limits) {
  if (!limits.takes_constraints) {
    return fail(ErrorKind::unsupported, "this engine takes no constraints: it does not know the texts of its tokens");
  }
  if (constraint.grammar == nullptr) {
    return refuse("the constraint has no grammar");
  }
  if (constraint.bound_id && constraint.trigger_ids.empty()) {
    return refuse("a bound token needs trigger tokens");
  }
  const auto is_outside = [&](TokenId id) { return id.value < 0 || id.value >= limits.vocab_size; };
  if (std::ranges::any_of(constraint.trigger_ids, is_outside) || (constraint.bound_id && is_outside(*constraint.bound_id))) {
    return refuse("trigger and bound tokens of a constraint go from 0 to " + std::to_string(limits.vocab_size - 1));
  }
  return {};
}

}  // namespace

Result<void> check_request(const GenerationRequest& request, const RequestLimits& limits) {
  if (auto prompt = check_prompt(request.prompt, limits); !prompt) {
    return prompt;
  }
  if (auto sampling = check_sampling(request.sampling); !sampling) {
    return sampling;
  }
  if (auto adjustments = check_adjustments(request.sampling.adjustments, limits); !adjustments) {
    return adjustments;
  }
  if (request.max_tokens < 0) {
    return refuse("max_tokens is " + std::to_string(request.max_tokens) + "; it must be at least 1, or 0 for the rest of the context");
  }
  if (std::ranges::any_of(request.stop_strings, &std::string::empty)) {
    return refuse("a stop string is empty; give at least one character");
  }
  if (auto images = check_images(request.images, request.prompt.size(), limits.images); !images) {
    return images;
  }
  if (request.sampling.want_prompt_logprobs && !request.images.empty()) {
    return refuse("log probabilities of a prompt with images are not computed; leave the images or the log probabilities out");
  }
  return request.constraint ? check_constraint(*request.constraint, limits) : Result<void>{};
}

std::int32_t max_total_tokens(const GenerationRequest& request, const RequestLimits& limits) {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t context = std::int64_t{limits.max_model_len} + 1;
  return static_cast<std::int32_t>(request.max_tokens == 0 ? context : std::min(context, num_prompt + request.max_tokens));
}

std::unexpected<Error> queue_is_full(std::int32_t max_unfinished) {
  return fail(ErrorKind::exhausted,
              "the queue is full: " + std::to_string(max_unfinished) + " requests run or wait already; try again when some are done");
}

}  // namespace deepinfer::engine

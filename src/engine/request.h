// What goes into the engine and what comes out: plain values, tokens only.
// Not here: text and API bodies (recipe, server), how it is done (engine.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/prompt_image.h"
#include "sampling/adjustments.h"
#include "sampling/params.h"
#include "scheduler/prefix_use.h"

namespace deepinfer::grammar {
class CompiledGrammar;
}

namespace deepinfer::engine {

struct SamplingParams {
  double temperature = 1.0;           ///< finite, at least 0; 0: greedy
  double top_p = 1.0;                 ///< in (0, 1]
  std::int32_t top_k = -1;            ///< at least 1; −1: all columns
  double min_p = 0.0;                 ///< in [0, 1]; 0: all columns
  std::uint64_t seed = 0;             ///< same seed, same prompt, same parameters: same tokens
  bool want_logprobs = false;         ///< fill TokenOutput::logprob
  std::int32_t num_top_logprobs = 0;  ///< 0 … kMaxTopLogprobs; needs want_logprobs
  bool want_prompt_logprobs = false;  ///< fill Output::prompt; needs want_logprobs. Every row of the prompt is computed, exactly
  sampling::LogprobKind logprob_kind = sampling::LogprobKind::raw;
  sampling::Adjustments adjustments = {};  ///< penalties and bias
};

inline constexpr std::int32_t kMaxTopLogprobs = 1000;  ///< engine.md §9.3

/// What the generated tokens must spell (structured_output.md).
struct Constraint {
  std::shared_ptr<const grammar::CompiledGrammar> grammar;
  std::vector<TokenId> trigger_ids = {};  ///< the grammar holds behind this id sequence; empty: from the first token
  std::optional<TokenId> bound_id = {};   ///< once it appears the trigger is forced; needs a trigger
};

struct GenerationRequest {
  std::vector<TokenId> prompt = {};  ///< at least one token, each in the vocabulary
  SamplingParams sampling = {};
  std::int32_t max_tokens = 0;  ///< 0: up to the context limit
  bool ignore_eos = false;      ///< the EOS token is a token like others
  /// Generation ends where one of these is complete in the bytes of the generated tokens. No token with a byte of it is emitted;
  /// tokens whose bytes might still become part of one are held back and come later, in order, or never. The bytes of the first
  /// withheld token that stand before the stop string are in Finish::text_before_stop. Of several, the one that is complete first
  /// counts, and of those that end at the same byte the longest. Not empty strings.
  std::vector<std::string> stop_strings = {};
  std::int32_t priority = 0;    ///< a higher one runs first and is preempted last; equal ones in order of arrival
  Duration time_limit{};        ///< from submission to the last token; zero: none
  bool drafts = true;           ///< false: not decoded speculatively
  std::string cache_salt = {};  ///< only requests with the same salt share cached prefixes
  /// EOS is allowed exactly where the text is complete, with ignore_eos nowhere; where nothing can follow, generation stops.
  std::optional<Constraint> constraint = {};
  std::vector<PromptImage> images = {};  ///< in the order of the prompt
};

enum class FinishReason {
  stop,         ///< EOS, which is not among the tokens, or a constraint after which nothing can follow
  stop_string,  ///< one of stop_strings
  length,       ///< max_tokens or the context limit
  cancelled,    ///< cancel() or the end of the engine
  timed_out,    ///< GenerationRequest::time_limit
  failed,       ///< see Finish::message
};

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::string message = {};           ///< failed: the reason in one sentence; stop_string: which one
  std::string text_before_stop = {};  ///< stop_string: bytes that follow the text of the emitted tokens
  std::int32_t num_generated = 0;     ///< tokens sampled and not EOS, withheld ones included
  std::int32_t num_verified_drafts = 0;
  std::int32_t num_accepted_drafts = 0;
};

struct TokenOutput {
  TokenId token;
  float logprob = 0;                                         ///< when wanted; at least sampling::kRemovedLogprob
  std::vector<std::pair<TokenId, float>> top_logprobs = {};  ///< most probable first, the smaller id on ties
};

/// What one step gives one request. The last output of a request, and only that one, has `finish`.
struct Output {
  RequestId request;
  std::vector<TokenOutput> prompt = {};  ///< tokens of the prompt from the second on, when wanted; all come before the first of tokens
  std::vector<TokenOutput> tokens = {};
  std::optional<Finish> finish = {};
  std::int32_t num_cached_tokens = 0;  ///< prompt tokens that were not computed because they were cached
  /// Why no more of the prompt was found in the cache, and the prompt token from which nothing was.
  scheduler::PrefixMiss prefix_miss = scheduler::PrefixMiss::none;
  std::int32_t first_prefix_miss = 0;
  Duration queue_time{};  ///< from the arrival to the first step that the request took part in
};

/// Called on the engine's thread, must not block. It may take the output away; it may call submit() and cancel(), not step().
using OutputSink = std::move_only_function<void(Output&&)>;

}  // namespace deepinfer::engine

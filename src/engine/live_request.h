// An accepted request inside the engine: its tokens, what may be shown of them, and its end.
// Not here: when it runs (scheduler), where tokens come from (engine.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "engine/request_images.h"
#include "engine/stop_matcher.h"
#include "kvcache/block_hash.h"

namespace deepinfer::grammar {
class Matcher;
}

namespace deepinfer::engine {

struct RequestSize {
  std::int32_t max_total = 0;   ///< tokens, prompt included, after which the request ends by length
  std::int32_t vocab_size = 0;  ///< of the model
};

class LiveRequest {
 public:
  /// `matcher`: of its constraint.
  LiveRequest(RequestId id, GenerationRequest&& request, RequestSize size, std::unique_ptr<grammar::Matcher> matcher, OutputSink&& sink);
  ~LiveRequest();

  [[nodiscard]] RequestId id() const { return output_.request; }
  [[nodiscard]] const SamplingParams& sampling() const { return sampling_; }
  [[nodiscard]] RequestImages& images() { return images_; }
  /// Prompt and generated tokens.
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  /// How often each token came; empty unless a penalty asks for it.
  [[nodiscard]] const sampling::TokenHistory& history() const { return history_; }
  /// Tokens after which it ends by length.
  [[nodiscard]] std::int32_t max_total() const { return max_total_; }
  [[nodiscard]] std::size_t num_prompt() const { return static_cast<std::size_t>(num_prompt_); }
  /// Tokens of the prompt that add_prompt() has had; the first has no probability.
  [[nodiscard]] std::size_t num_scored() const { return num_scored_; }
  [[nodiscard]] bool ignores_eos() const { return ignore_eos_; }
  [[nodiscard]] bool is_finished() const { return finished_; }

  /// Follows the generated tokens; nullptr without a constraint.
  [[nodiscard]] grammar::Matcher* matcher() { return matcher_.get(); }

  /// Takes the next token, whose bytes are `token_bytes` and which the matcher has accepted; may finish the request by stop string,
  /// complete constraint or length.
  void add(TokenOutput&& token, std::string_view token_bytes);
  /// Takes the log probability of the next token of the prompt, from the second on.
  void add_prompt(TokenOutput&& token);
  /// Ends the request; tokens held back are shown.
  void finish(FinishReason reason, std::string message = {});
  /// Gives the sink what has come since the last call, if anything has.
  void deliver();
  /// Outputs from now on say so.
  void set_prefix(const scheduler::PrefixReport& prefix);
  void set_queue_time(Duration time) { output_.queue_time = time; }
  /// Outputs from now on say of the beginning what those of `leader`, another choice of the same prompt, say.
  void begin_as(const LiveRequest& leader);

  /// The engine's notes, of no meaning here.
  struct Notes {
    TimePoint arrival{};
    TimePoint deadline{};                ///< zero: none
    kvcache::BlockHash last_prefix{};    ///< of the last full block of tokens(), or the salt's
    std::int32_t num_hashed_tokens = 0;  ///< that last_prefix covers
    std::int32_t priority = 0;
    bool awaits_delivery = false;
    bool drafts = true;
    bool is_unscheduled = false;  ///< waits for another choice of the same prompt, or for files; the scheduler does not know it yet
    std::vector<RequestId> followers = {};  ///< choices that start with the logits behind this one's prompt
  };
  Notes notes;

  /// Proposed tokens behind the last known one, and what is thought of them. Kept for their capacity.
  struct Drafts {
    std::vector<TokenId> rows;       ///< the last known token, then the drafts; empty: none
    std::vector<char> forced;        ///< per draft: the constraint proposes it, not the drafter
    std::vector<float> logits;       ///< of the confidences, one per draft; 0 for forced ones
    std::vector<float> rates;        ///< probability that this draft and all before it are accepted
    std::vector<float> older_rates;  ///< of the proposal before; 1 for drafts that it did not have
    std::vector<float> log_probs;    ///< [drafts, vocab] what each was drawn from; rejection rule only
    std::int32_t num_verified = 0;   ///< of all proposals
    std::int32_t num_accepted = 0;
    std::size_t num_matched = 0;  ///< while proposing: drafts that the matcher has taken
    bool is_closed = false;       ///< while proposing: nothing can follow the last draft
    [[nodiscard]] std::size_t count() const { return rows.empty() ? 0 : rows.size() - 1; }
  };
  Drafts drafts;
  /// So that drafting allocates nothing later.
  void reserve_drafts(std::int32_t max_drafts);

 private:
  void show(std::size_t num_tokens);
  void end_with(Finish&& finish);

  SamplingParams sampling_;
  std::vector<TokenId> tokens_;
  RequestImages images_;
  sampling::TokenHistory history_;
  std::int32_t num_prompt_ = 0;
  std::size_t num_scored_ = 1;
  std::int32_t max_total_ = 0;
  bool ignore_eos_ = false;
  bool finished_ = false;
  StopMatcher stop_matcher_;
  std::unique_ptr<grammar::Matcher> matcher_;
  std::vector<TokenOutput> held_back_;
  Output output_;
  OutputSink sink_;
};

}  // namespace deepinfer::engine

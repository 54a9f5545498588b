// Engine: submit, cancel, step. One thread owns it and everything inside; engine_thread.h is the same for many threads.
// Not here: files and devices (load.h), text (recipe, server).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/live_request.h"
#include "engine/options.h"
#include "engine/prefix_tiers.h"
#include "engine/request.h"
#include "engine/request_check.h"
#include "engine/speculation.h"
#include "engine/stats.h"
#include "engine/swapped_requests.h"
#include "kvcache/cache_pool.h"
#include "model/deepseek_v41/model.h"
#include "sampling/rejection.h"
#include "sampling/sampler.h"
#include "scheduler/scheduler.h"

namespace deepinfer::grammar {
class Vocabulary;
}

namespace deepinfer::engine {

/// A model as the engine needs it. One step is under way at a time.
struct ModelCalls {
  /// Queues one step. The spans of the chunks are read during the call only.
  std::move_only_function<void(std::span<const model::Chunk>)> launch;
  /// Behind it: what is wanted of every row of logits, in chunk order (DeepseekV41::draw). Empty: the engine draws from the logits of all rows.
  std::move_only_function<void(std::span<const model::RowDraw>)> draw = {};
  /// Waits for it. The result is valid until the next launch.
  std::move_only_function<model::StepRows()> wait;
  /// Behind a wait: what is wrong with the device; empty: nothing (DeepseekV41::fault). No such call: the device cannot fail.
  std::move_only_function<std::string_view()> fault = {};
  /// Queues a copy of the bounded state of one slot to another, in order with the launches. Empty: exact reuse of prefixes is off.
  std::move_only_function<void(SlotId from, SlotId to)> copy_state = {};
  /// The same for a block. Empty, as copy_state: choices of one prompt compute it each.
  std::move_only_function<void(BlockId from, BlockId to)> copy_block = {};
  /// DeepseekV41::draft, between a wait and the next launch. Empty: no speculation.
  std::move_only_function<std::span<const float>(std::span<const model::DraftStart> starts, std::int32_t num_drafts,
                                                 model::PickDrafts& pick)>
      draft = {};
  /// The same with tokens drawn on the device. Empty: `draft` always.
  std::move_only_function<model::DrawnDrafts(std::span<const model::DraftStart> starts, std::int32_t num_drafts,
                                             std::span<const TokenDraw> draws)>
      draft_drawn = {};
  /// Between launches. Empty: no images.
  ImageCalls images = {};
};

/// One of several replies to one prompt.
struct Choice {
  std::uint64_t seed = 0;
  OutputSink sink;
};
/// The calls of a model that computes at once.
[[nodiscard]] ModelCalls synchronous(std::move_only_function<std::span<const float>(std::span<const model::Chunk>)> forward);

/// The tokens of a text that a constraint forces, but those at its end that a longer text could part otherwise (grammar::forced_ids).
using ForcedTokens = std::move_only_function<std::vector<TokenId>(std::string_view) const>;

/// Raw bytes of a token, for stop strings (Tokenizer::bytes); valid as long as the engine.
using TokenBytes = std::move_only_function<std::string_view(TokenId) const>;

/// What an engine is made of.
struct EngineParts {
  ModelCalls model;
  TokenBytes token_bytes;
  std::int32_t vocab_size = 0;
  TokenId eos;
  std::int32_t num_previous_tokens = 0;  ///< that the model wants to be told before a chunk (DeepseekV41::num_previous_tokens)
  kvcache::CacheGeometry geometry;       ///< as the model allocated it
  std::shared_ptr<const grammar::Vocabulary> vocabulary = {};  ///< [vocab_size] rows; without it constraints are refused
  ForcedTokens forced_tokens = {};                             ///< empty: no jump-ahead
  std::unique_ptr<PrefixTiers> tiers = {};                     ///< none: what is evicted is lost
  CacheCalls swap = {};                            ///< for EngineOptions::swap_memory_bytes; without them preempted requests compute again
  std::optional<model::VisionConfig> vision = {};  ///< of a model that takes images
  std::int32_t window = 0;                         ///< positions of the model's sliding window; for bounded replay
  std::unique_ptr<const Clock> clock = std::make_unique<SteadyClock>();  ///< for time limits and EngineStats; tokens never depend on it
};

class Engine {
 public:
  /// options.max_model_len > 0 and within the geometry; max_batched_tokens >= max_requests; replay_keep, if any, at least a window and
  /// one position more; max_drafts not above what the model was made for.
  Engine(EngineParts parts, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Prefixes in device memory go to the lower tiers.
  ~Engine();

  /// Accepts a request; its outputs go to `sink`, during step(). Errors: those of check_request; exhausted when max_requests +
  /// max_queue requests are unfinished.
  [[nodiscard]] Result<RequestId> submit(GenerationRequest request, OutputSink sink);
  /// One request per choice, each with the tokens it has alone with its seed. The prompt is computed once: the others fork behind it.
  /// `request.sampling.seed` is not used. Errors: as submit(), for all together.
  [[nodiscard]] Result<std::vector<RequestId>> submit_choices(const GenerationRequest& request, std::vector<Choice> choices);
  /// The request ends with FinishReason::cancelled at the start of the next step; nothing happens when it is over already.
  void cancel(RequestId request);
  void cancel_all();

  /// One step. False: there was nothing to do.
  bool step();
  [[nodiscard]] bool has_work() const { return !live_.empty(); }
  [[nodiscard]] EngineStats stats() const;

  /// Aborts unless the scheduler's lists, states and pools agree.
  void check_integrity() const { scheduler_.check_integrity(); }

  /// For EngineThread, which checks and counts requests on the threads of its callers.
  [[nodiscard]] const RequestLimits& limits() const { return limits_; }
  [[nodiscard]] std::int32_t max_unfinished() const { return max_unfinished_; }
  /// Starts a request that check_request accepted, under an id that was never used.
  void start(RequestId id, GenerationRequest&& request, OutputSink&& sink);
  /// The same for choices; `ids`: one each.
  void start_choices(std::span<const RequestId> ids, const GenerationRequest& request, std::vector<Choice>&& choices);

 private:
  void end_cancelled();
  void end_overdue();
  void end_early(RequestId request, FinishReason reason, const std::string& message = {});
  void note_fault();
  void end_all_with_fault();
  void make_plan();
  void restore_states();
  bool encode_images();  // engine_images.cpp
  void gather_chunks();
  void launch();
  void collect_rows();
  void count_step_time();
  // engine_draws.cpp
  void draw_rows();
  [[nodiscard]] bool can_draw(const LiveRequest& live) const;
  [[nodiscard]] static TokenDraw token_draw(const LiveRequest& live, std::int64_t offset);
  void draw_chunk(LiveRequest& live, const model::Chunk& chunk);
  [[nodiscard]] std::span<const std::uint32_t> next_mask(grammar::Matcher& matcher);
  /// Rows of one chunk: logits, or tokens where ChunkOwner::is_drawn.
  struct ChunkRows {
    std::span<const float> logits;
    std::span<const std::int32_t> tokens;
  };
  /// One of them.
  struct Row {
    std::span<const float> logits;
    std::optional<std::int32_t> token;  ///< or why there is none
  };
  [[nodiscard]] Row row_of(const ChunkRows& rows, std::size_t index) const;
  void score_prompt(LiveRequest& live, const model::Chunk& chunk, std::span<const float> rows);
  void take_row(LiveRequest& live, const Row& row);
  bool sample_token(LiveRequest& live, const Row& row, std::int32_t draft = -1);
  [[nodiscard]] static sampling::Params sampling_params(const LiveRequest& live);
  LiveRequest& make_live(RequestId id, GenerationRequest&& request, OutputSink&& sink);
  void enqueue(LiveRequest& live);
  [[nodiscard]] kvcache::BlockHash name_of_block(LiveRequest& live, std::size_t end);
  [[nodiscard]] std::unique_ptr<grammar::Matcher> make_matcher(const GenerationRequest& request) const;
  // engine_tiers.cpp
  void restore_prefixes();
  [[nodiscard]] bool await_reads(LiveRequest& live, scheduler::Submitted& submitted);
  void enqueue_read();
  [[nodiscard]] bool wait_for_reads();
  [[nodiscard]] std::span<const kvcache::BlockHash> usable_prefixes(std::span<const kvcache::BlockHash> prefixes,
                                                                    std::int32_t num_tokens) const;
  // engine_swap.cpp
  void save_preempted();
  void restore_resumed();
  // engine_choices.cpp
  void start_followers(LiveRequest& leader, std::span<const float> logits);
  void fork(LiveRequest& leader, LiveRequest& follower);
  void pass_on_followers(LiveRequest& leader);
  // engine_drafts.cpp
  using Judgement = std::expected<sampling::Verdict, sampling::RowFailure>;
  [[nodiscard]] static Judgement verdict_of(const LiveRequest& live, std::int32_t drawn, std::int32_t draft);
  [[nodiscard]] Judgement judge(LiveRequest& live, std::span<const float> logits, std::int32_t draft);
  void plan_drafts();
  void take_draft_rows(LiveRequest& live, const model::Chunk& chunk, const ChunkRows& rows);
  void propose_drafts();
  void begin_drafts(LiveRequest& live);
  void append_forced(LiveRequest& live);
  bool append_draft(LiveRequest& live, TokenId token);
  void run_drafter();
  [[nodiscard]] std::span<const float> draft_tokens();
  void rate_drafts(LiveRequest& live) const;
  void pick_drafts(std::int32_t index, std::span<const float> logits, std::span<TokenId> tokens);
  [[nodiscard]] std::optional<TokenId> propose(LiveRequest& live, std::int32_t index, std::span<const float> logits);
  void report_step();

  [[nodiscard]] std::span<const float> adjusted(const LiveRequest& live, std::span<const float> logits);
  void take_token(LiveRequest& live, TokenId token);
  [[nodiscard]] std::span<const float> allowed_logits(LiveRequest& live, std::span<const float> logits);
  void fail_request(LiveRequest& live, std::string_view why);
  [[nodiscard]] TokenOutput token_output(TokenId token, const SamplingParams& wanted);
  void extend_prefixes(LiveRequest& live);
  void apply(const scheduler::Event& event) { scheduler_.apply(std::span(&event, 1)); }
  void await_delivery(LiveRequest& live);
  void deliver();
  void forget(LiveRequest& live);

  EngineParts parts_;
  RequestLimits limits_;
  std::int32_t max_unfinished_ = 0;
  bool overlaps_ = false;
  bool shares_prefixes_ = false;
  bool jumps_ahead_ = false;
  bool masks_rows_ = false;
  scheduler::Scheduler scheduler_;
  ImageEncoder image_encoder_;
  SwappedRequests swapped_;
  double seconds_per_prefill_row_ = 0;  // recent mean; 0: not known
  sampling::Sampler sampler_;
  std::unordered_map<RequestId, LiveRequest> live_;  // nodes: addresses stay valid
  std::uint64_t last_id_ = 0;
  std::vector<RequestId> cancels_;  // for the next step
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  TimePoint last_finish_{};
  EngineStats counters_;

  const scheduler::StepPlan* plan_ = nullptr;  // made, not launched yet
  std::vector<RequestId> arrivals_;            // since the last plan; kept only with tiers
  std::vector<scheduler::Submitted> reading_;  // whose prefixes come from the disk, in order of arrival

  // Of the current step, kept for their capacity.
  std::vector<model::Chunk> chunks_;
  struct ChunkOwner {
    LiveRequest* live = nullptr;
    bool is_complete = false;  ///< these two as in PlannedChunk
    std::int32_t num_drafts = 0;
    bool is_drawn = false;  ///< tokens come from the device, not logits
  };
  std::vector<ChunkOwner> chunk_owners_;
  std::int32_t num_prefill_rows_ = 0;
  StepKind step_kind_ = StepKind::decode;
  TimePoint step_begin_{};
  TimePoint forward_begin_{};
  TimePoint forward_end_{};
  std::vector<scheduler::NeededSpan> needed_spans_;  // of the last plan
  std::vector<scheduler::Event> events_;
  std::vector<LiveRequest*> to_deliver_;
  std::vector<float> adjusted_;  // [vocab] one row

  // Speculative decoding; none of it without drafts.
  std::unique_ptr<Speculation> speculation_;
  std::unique_ptr<sampling::RejectionRule> rejection_;  // none: the coupled rule
  std::int32_t max_batched_tokens_ = 0;
  std::vector<RequestId> draft_owners_;  // decoding requests behind the last step, in its order
  std::vector<scheduler::DraftRates> rates_;
  std::vector<scheduler::DraftRates> older_rates_;
  std::vector<LiveRequest*> drafting_;  // of the draft pass
  std::vector<model::DraftStart> draft_starts_;
  model::PickDrafts pick_drafts_;
  std::vector<float> target_row_;  // [vocab] processed log-probabilities
  std::int64_t num_generated_before_step_ = 0;
  std::int64_t num_forced_before_step_ = 0;  // accepted
  bool prefers_forced_ = true;               // to drafts of the drafter
  std::optional<double> draft_seconds_;  // of the pass behind the last step

  // Of the current constrained row.
  std::vector<model::RowDraw> draws_;  // of the launched step
  std::vector<std::uint32_t> masks_;   // [max_requests * (1 + max_drafts), words of a mask] of draws_
  std::size_t num_masks_ = 0;
  std::vector<TokenDraw> draft_draws_;
  std::vector<std::uint32_t> mask_;
  std::vector<float> masked_row_;
};

}  // namespace deepinfer::engine

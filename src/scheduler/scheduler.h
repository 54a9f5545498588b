// Scheduler: what the next step computes. plan() reserves and returns a value, apply(events) is the only other mutator; both are
// pure arithmetic on ids and counts. "Older" and "younger" follow Rank. Not here: tokens, sampling, memory, devices, time.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "kvcache/cache_pool.h"
#include "scheduler/prefill_lanes.h"
#include "scheduler/prefix_use.h"
#include "scheduler/request.h"

namespace deepinfer::scheduler {

struct Limits {
  std::int32_t max_requests = 0;        ///< running at once, and rows of one step that have logits
  std::int32_t max_batched_tokens = 0;  ///< rows of one step, at least max_requests
  ReusePolicy reuse = {};
  bool notes_preempted_caches = false;  ///< StepPlan::freed is filled
};

/// Positions of the longest span that a step has room for beside a row of every other running request.
[[nodiscard]] constexpr std::int32_t max_whole_span(const Limits& limits) { return limits.max_batched_tokens - limits.max_requests + 1; }

/// Rows of one request in one step: positions first_position … first_position + num_tokens − 1.
struct PlannedChunk {
  RequestId request;
  SlotId slot;
  std::span<const BlockId> blocks;  ///< covers all positions up to the last of the chunk
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_drafts = 0;      ///< of these, proposed tokens behind the last known one
  bool is_complete = false;         ///< it ends at the last known token, or drafts behind it: the next one is sampled
  std::int32_t num_logit_rows = 0;  ///< of the last rows: 1 and drafts when complete, else 0; all rows of a prompt that is scored
  std::int32_t keep_from = 0;       ///< these three as in model::Chunk
  std::int32_t first_valid = 0;
  std::int32_t stored_until = 0;
};

/// The bounded state in one slot is copied to another.
struct StateCopy {
  SlotId from;
  SlotId to;
};

/// What a preempted request held: free already, but nothing is written to it before the next launch.
struct FreedCache {
  RequestId request;
  SlotId slot;
  std::vector<BlockId> blocks;    ///< those with computed positions, and those it shared and had not reached
  std::int32_t num_computed = 0;  ///< positions
};

/// A request got its cache, for the first time or again.
struct Admission {
  RequestId request;
  bool is_first = true;
  bool is_resumed = false;  ///< what was saved of it (Saved) is put into its slot and blocks before the chunks are computed
  PrefixReport prefix;
};

/// A span that a running prompt comes to next and that is not ready.
struct NeededSpan {
  RequestId request;
  std::int32_t first_position = 0;
};

/// One step. At most one chunk per request; decode rows first, oldest request first, then prefill chunks, oldest first.
/// The block spans are valid until the next plan() and while their request has not ended.
struct StepPlan {
  std::vector<PlannedChunk> chunks;
  std::int32_t num_decode_chunks = 0;
  std::int32_t num_tokens = 0;       ///< rows of all chunks
  std::vector<RequestId> preempted;  ///< lost their cache to this plan
  std::vector<FreedCache> freed;     ///< theirs, when Limits asks for it
  std::vector<Admission> admitted;
  std::vector<NeededSpan> needed_spans;    ///< the next of every prompt that is not ready, the oldest prompt first
  std::vector<StateCopy> restored_states;  ///< copied before the chunks are computed, in this order
  std::vector<StateCopy> saved_states;     ///< copied after the chunks were computed
};

/// A new request with `num_tokens` known tokens (at least 1), of which at most `max_positions` positions are ever computed.
struct Submitted {
  RequestId request;
  std::int32_t num_tokens = 0;
  std::int32_t max_positions = 0;                 ///< from num_tokens to the pool's max_positions()
  std::int32_t priority = 0;                      ///< a higher one comes first
  std::vector<kvcache::BlockHash> prefixes = {};  ///< of the blocks that the tokens fill; empty: nothing is shared
  /// Spans of images among the tokens, ascending, disjoint, each at most max_whole_span() long: no chunk cuts one.
  std::vector<WholeSpan> whole_spans = {};
  bool scores_prompt = false;  ///< every row of the prompt passes every layer and has its logits
};
/// The input of a span is there.
struct SpanReady {
  RequestId request;
  std::int32_t first_position = 0;
};
/// The next `num_drafts` tokens of a decoding request are proposed: the next plan verifies as many of them as there is room for, in one
/// chunk. Drafts never cost another request anything. They are forgotten with the next plan or when the request is preempted.
struct Drafted {
  RequestId request;
  std::int32_t num_drafts = 0;
};
/// A planned chunk was computed: `num_computed` positions more are valid, `num_new_tokens` tokens more are known. A chunk with drafts is
/// reported once per accepted row, so that every block is named before it is complete.
struct Advanced {
  RequestId request;
  std::int32_t num_computed = 0;
  std::int32_t num_new_tokens = 0;
};
/// The known tokens fill one block more. Comes before the step that computes its last position is reported.
struct BlockFilled {
  RequestId request;
  kvcache::BlockHash prefix;
};
/// A new request that goes on as `parent` does, whose prompt was just computed: another first token was sampled from the same logits.
/// It shares the full blocks of the prompt and decodes at once when slot and blocks are there (find() says so; the caller then copies
/// the state and the block that the prompt fills partly), and is queued as if submitted with its tokens otherwise.
struct Forked {
  RequestId parent;
  RequestId request;
  std::int32_t max_positions = 0;
};
/// What is in StepPlan::freed of a preempted request is kept elsewhere: it goes on from there when it is admitted again, unless the prefix
/// cache has nearly as much. Nothing happens when it is not preempted any more.
struct Saved {
  RequestId request;
};
/// The request is over, for whatever reason and in whatever state.
struct Ended {
  RequestId request;
};
using Event = std::variant<Submitted, SpanReady, Drafted, Advanced, BlockFilled, Forked, Saved, Ended>;

/// An older request that does not fit is passed by at most this many younger ones; then it is next. Enough to use the holes that
/// a long prompt waits beside, few enough that it waits for the end of requests that run already.
inline constexpr std::int32_t kMaxOvertakes = 16;

class Scheduler {
 public:
  Scheduler(Limits limits, kvcache::CacheGeometry geometry);

  /// Decides the next step and reserves its blocks and slots. Valid until the next call; without chunks when nothing can run, which
  /// happens only when no request is running or queued, or when those that run wait for spans.
  [[nodiscard]] const StepPlan& plan();
  void apply(std::span<const Event> events);

  /// The pool, for prefixes that come from lower tiers (CachePool::adopt and what belongs to it). Between a plan and its launch the plan's
  /// slots must not be given to others, so only right before plan().
  [[nodiscard]] kvcache::CachePool& pool_for_tiers() { return pool_; }

  /// nullptr when unknown or forgotten.
  [[nodiscard]] const Request* find(RequestId request) const;
  [[nodiscard]] const kvcache::CachePool& pool() const { return pool_; }
  [[nodiscard]] std::int32_t num_running() const { return static_cast<std::int32_t>(running_.size()); }
  [[nodiscard]] std::int32_t num_queued() const { return static_cast<std::int32_t>(queue_.size()); }

  /// Aborts unless lists, states and pools agree.
  void check_integrity() const;

 private:
  void apply(const Submitted& event);
  void apply(const Drafted& event);
  void apply(const SpanReady& event);
  void apply(const Advanced& event);
  void apply(const BlockFilled& event);
  void apply(const Forked& event);
  void apply(const Saved& event);
  void apply(const Ended& event);

  void forget_finished();
  [[nodiscard]] std::int32_t rows_of_next_spans() const;
  void plan_decode();
  [[nodiscard]] std::int32_t num_draft_rows(const Request& request, std::int32_t budget) const;
  void plan_prefill();
  [[nodiscard]] std::size_t cheapest_younger(std::size_t index) const;
  void preempt_running(std::size_t index);
  void note_freed(const Request& request);
  void collect_prefill_candidates();
  [[nodiscard]] std::int32_t admission_positions(const Request& request) const;
  [[nodiscard]] PrefixUse prefix_use(const Request& request) const;
  [[nodiscard]] bool fits(const Request& request, const PrefixUse& use) const;
  [[nodiscard]] bool may_grow(const Request& request) const;
  [[nodiscard]] bool try_admit(Request& request);
  void start(Request& request, const PrefixUse& use);
  void note_needed_spans();
  [[nodiscard]] std::int32_t next_stop(const Request& request) const;
  [[nodiscard]] std::int32_t max_scored_rows() const;
  void add_chunk(const Request& request, std::int32_t num_tokens, std::int32_t num_drafts = 0);
  void save_states();
  [[nodiscard]] std::int32_t last_usable_end(const Request& request) const;
  void forget_passed_state(const Request& request, std::int32_t end);
  [[nodiscard]] bool is_worth_keeping(const Request& request, std::int32_t end) const;
  void publish(Request& request);
  void publish_state(Request& request);
  [[nodiscard]] Request& insert(Request&& request);
  [[nodiscard]] Request& known(RequestId request);

  const Limits limits_;
  kvcache::CachePool pool_;
  std::unordered_map<RequestId, Request> requests_;  // nodes: addresses stay valid
  std::vector<Request*> running_;                    // Prefilling and Decoding, in order of rank
  std::vector<Request*> queue_;                      // Waiting and Preempted, in order of rank
  std::vector<RequestId> finished_;                  // to be forgotten by the next plan
  std::uint64_t next_arrival_ = 0;
  StepPlan plan_;

  // Scratch of plan_prefill, kept for its capacity.
  std::vector<Request*> candidates_;
  std::vector<PrefillShare> shares_;
  std::int32_t num_growing_ = 0;  // running requests that may need a block later
};

}  // namespace deepinfer::scheduler

#include "recipe/reply_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::recipe {

ReplyStreamOptions reply_stream_options(Api api, const ConvertedRequest& request) {
  ReplyStreamOptions options;
  options.api = api;
  options.model = request.model;
  if (request.conversation.thinking_mode == ThinkingMode::off) {
    options.opening = ReplyOpening::plain;
  } else if (request.parsing.thinking_initial_stage == ThinkingStage::content_continuation) {
    options.opening = ReplyOpening::continues_content;
  }
  options.parsing = request.parsing;
  options.usage_member = request.include_usage ? UsageMember::null : UsageMember::absent;
  options.responses = request.responses;
  return options;
}

ReplyStream::ReplyStream(ReplyStreamOptions options)
    : options_(std::move(options)), parser_(options_.parsing, options_.special_tokens), generator_(make_generator(options_)) {
  check(options_.random_bits != nullptr, "a reply stream has a source of random bits");
  if (options_.tokenizer != nullptr) {
    segments_.emplace(*options_.tokenizer);
  }
}

ReplyStream::Generator ReplyStream::make_generator(const ReplyStreamOptions& options) {
  check(options.unix_time != nullptr, "a reply stream has a clock");
  ReplyIdentity identity{.id = options.id, .model = options.model, .created = options.unix_time()};
  switch (options.api) {
    case Api::messages:
      return MessagesEvents(std::move(identity), options.opening, options.signature.value_or(options.id));
    case Api::responses:
      return ResponsesEvents(std::move(identity), options.responses, options.unix_time);
    case Api::chat:
      break;
  }
  return ChatChunks(std::move(identity), options.opening, options.usage_member);
}

std::span<const Event> ReplyStream::ready(const ReadyInfo& info) {
  events_.clear();
  if (!started_) {
    usage_.prompt_tokens = info.prompt_tokens;
    usage_.cached_tokens = info.cached_tokens;
    fingerprint_ = info.system_fingerprint;
    start();
  }
  return events_.events();
}

std::span<const Event> ReplyStream::text(std::string_view text, std::uint64_t num_tokens) {
  events_.clear();
  if (!finished()) {
    usage_.completion_tokens += num_tokens;
    feed({.text = text, .kind = SegmentKind::text, .source = next_source_++}, {});
  }
  return events_.events();
}

Result<std::span<const Event>> ReplyStream::tokens(std::span<const TokenId> ids, const std::vector<TokenLogprob>* logprobs) {
  events_.clear();
  if (finished()) {
    return events_.events();
  }
  if (!segments_) {
    return fail(ErrorKind::invalid_argument, "token chunk received without a tokenizer");
  }
  if (logprobs != nullptr && logprobs->size() != ids.size()) {
    return fail(ErrorKind::invalid_argument, "invalid log probabilities: " + std::to_string(logprobs->size()) + " log probabilities for " +
                                                 std::to_string(ids.size()) + " token IDs");
  }
  segments_->push(ids, logprobs);
  while (const std::optional<TokenSegment> segment = finished() ? std::nullopt : segments_->take()) {
    usage_.completion_tokens += segment->num_tokens;
    if (segment->text.empty()) {
      start();
      continue;
    }
    feed({.text = segment->text, .kind = segment->kind, .source = next_source_++}, segment->logprobs);
  }
  return events_.events();
}

std::span<const Event> ReplyStream::finish(BackendFinish reason) {
  events_.clear();
  if (!finished()) {
    start();
    handle(parser_.finish(reason));
  }
  return events_.events();
}

std::string ReplyStream::response() const {
  return std::visit([](const auto& generator) { return generator.response(); }, generator_);
}

void ReplyStream::start() {
  if (!started_) {
    started_ = true;
    std::visit([this](auto& generator) { generator.start(usage_, fingerprint_, events_); }, generator_);
  }
}

void ReplyStream::feed(const Segment& segment, std::string_view logprobs) {
  if (!logprobs.empty()) {
    logprobs_.push_back({.source = segment.source, .json = std::string(logprobs)});
  }
  start();
  handle(parser_.feed(segment));
  const std::uint64_t oldest = parser_.oldest_source(next_source_);
  while (!logprobs_.empty() && logprobs_.front().source < oldest) {
    logprobs_.pop_front();
  }
}

void ReplyStream::handle(std::span<const Delta> deltas) {
  for (const Delta& delta : deltas) {
    std::visit([this](const auto& one) { handle(one); }, delta);
  }
}

void ReplyStream::handle(const ReasoningText& delta) {
  has_reasoning_ = has_reasoning_ || !delta.text.empty();
  if (options_.tokenizer != nullptr) {
    turn_.reasoning += delta.text;
  }
  std::visit([&](auto& generator) { generator.add(delta, logprobs_of(delta.source), events_); }, generator_);
}

void ReplyStream::handle(const ContentText& delta) {
  turn_.content += delta.text;
  std::visit([&](auto& generator) { generator.add(delta, logprobs_of(delta.source), events_); }, generator_);
}

void ReplyStream::handle(const CallStart& delta) {
  const bool reasoning_is_empty = options_.opening != ReplyOpening::plain && !has_reasoning_;
  turn_.calls.push_back(
      {.id = make_call_id(delta.index, reasoning_is_empty, options_.random_bits), .name = std::string(delta.name), .arguments = {}});
  std::visit([&](auto& generator) { generator.add(delta, turn_.calls.back().id, events_); }, generator_);
}

void ReplyStream::handle(const CallArguments& delta) {
  turn_.calls.back().arguments += delta.text;
  std::visit([&](auto& generator) { generator.add(delta, events_); }, generator_);
}

void ReplyStream::handle(const Finished& end) {
  if (options_.tokenizer != nullptr && options_.parsing.thinking_initial_stage != ThinkingStage::none) {
    usage_.reasoning_tokens = options_.tokenizer->encode(turn_.reasoning, tokenizer::AddedTokens::recognise).size();
  }
  std::visit([&](auto& generator) { generator.finish(end, usage_, events_); }, generator_);
}

std::string_view ReplyStream::logprobs_of(std::uint64_t source) const {
  const auto at = std::ranges::lower_bound(logprobs_, source, {}, &SourceLogprobs::source);
  return at != logprobs_.end() && at->source == source ? std::string_view(at->json) : std::string_view();
}

}  // namespace deepinfer::recipe

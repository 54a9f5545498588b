// Tokens pass through held_back_ on their way to the sink; without stop strings they leave it at once.
#include "engine/live_request.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "grammar/matcher.h"

namespace deepinfer::engine {

LiveRequest::LiveRequest(RequestId id, GenerationRequest&& request, RequestSize size, std::unique_ptr<grammar::Matcher> matcher,
                         OutputSink&& sink)
    : sampling_(std::move(request.sampling)),
      tokens_(std::move(request.prompt)),
      images_(std::move(request.images)),
      num_prompt_(static_cast<std::int32_t>(tokens_.size())),
      max_total_(size.max_total),
      ignore_eos_(request.ignore_eos),
      stop_matcher_(std::move(request.stop_strings)),
      matcher_(std::move(matcher)),
      output_{.request = id},
      sink_(std::move(sink)) {
  if (sampling_.adjustments.use_history()) {
    history_ = sampling::TokenHistory(size.vocab_size, tokens_, max_total_ - num_prompt_);
  }
}

LiveRequest::~LiveRequest() = default;

void LiveRequest::reserve_drafts(std::int32_t max_drafts) {
  const auto count = static_cast<std::size_t>(max_drafts);
  drafts.rows.reserve(count + 1);
  drafts.forced.reserve(count);
  held_back_.reserve(count + 1);
  output_.tokens.reserve(count + 1);
  for (auto* values : {&drafts.logits, &drafts.rates, &drafts.older_rates}) {
    values->reserve(count);
  }
}

void LiveRequest::add(TokenOutput&& token, std::string_view token_bytes) {
  check(!finished_, "a finished request gets no token");
  tokens_.push_back(token.token);
  if (sampling_.adjustments.use_history()) {
    history_.add(token.token);
  }
  held_back_.push_back(std::move(token));
  const StopMatcher::Progress progress = stop_matcher_.append(token_bytes);
  show(static_cast<std::size_t>(progress.num_released));
  if (!progress.found.empty()) {
    held_back_.clear();
    end_with({.reason = FinishReason::stop_string,
              .message = std::string(progress.found),
              .text_before_stop = std::string(progress.text_before)});
  } else if (matcher_ && matcher_->is_finished()) {
    finish(FinishReason::stop);
  } else if (static_cast<std::int32_t>(tokens_.size()) >= max_total_) {
    finish(FinishReason::length);
  }
}

void LiveRequest::add_prompt(TokenOutput&& token) {
  check(num_scored_ < num_prompt(), "a prompt has a probability for each token but the first");
  output_.prompt.push_back(std::move(token));
  ++num_scored_;
}

void LiveRequest::finish(FinishReason reason, std::string message) {
  show(held_back_.size());
  end_with({.reason = reason, .message = std::move(message)});
}

void LiveRequest::show(std::size_t num_tokens) {
  const auto end = held_back_.begin() + static_cast<std::ptrdiff_t>(num_tokens);
  output_.tokens.insert(output_.tokens.end(), std::move_iterator(held_back_.begin()), std::move_iterator(end));
  held_back_.erase(held_back_.begin(), end);
}

void LiveRequest::end_with(Finish&& finish) {
  check(!finished_, "a request finishes once");
  finished_ = true;
  finish.num_generated = static_cast<std::int32_t>(tokens_.size()) - num_prompt_;
  finish.num_verified_drafts = drafts.num_verified;
  finish.num_accepted_drafts = drafts.num_accepted;
  output_.finish = std::move(finish);
}

void LiveRequest::set_prefix(const scheduler::PrefixReport& prefix) {
  output_.num_cached_tokens = prefix.num_cached;
  output_.prefix_miss = prefix.miss;
  output_.first_prefix_miss = prefix.first_miss;
}

void LiveRequest::begin_as(const LiveRequest& leader) {
  output_.num_cached_tokens = leader.output_.num_cached_tokens;
  output_.prefix_miss = leader.output_.prefix_miss;
  output_.first_prefix_miss = leader.output_.first_prefix_miss;
  output_.queue_time = leader.output_.queue_time;
}

void LiveRequest::deliver() {
  if (output_.prompt.empty() && output_.tokens.empty() && !output_.finish) {
    return;
  }
  const RequestId id = output_.request;
  sink_(std::move(output_));
  output_.request = id;
  output_.prompt.clear();
  output_.tokens.clear();  // a sink that only looked has left the capacity
  output_.finish.reset();
}

}  // namespace deepinfer::engine

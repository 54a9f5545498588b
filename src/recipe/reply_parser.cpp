#include "recipe/reply_parser.h"

#include <algorithm>
#include <utility>

namespace deepinfer::recipe {

namespace {

/// Stages whose text is not dropped.
bool keeps_text(Stage stage) {
  switch (stage) {
    case Stage::reasoning:
    case Stage::content:
    case Stage::json:
    case Stage::after_json:
    case Stage::name:
    case Stage::key:
    case Stage::value:
      return true;
    case Stage::calls:
    case Stage::arguments:
    case Stage::value_type:
    case Stage::finished:
      return false;
  }
  return false;
}

}  // namespace

ReplyParser::ReplyParser(const ParsingOptions& options, const SpecialTokens& tokens)
    : parse_json_output_(options.parse_json_output),
      is_improved_(options.conformance == Conformance::improved),
      max_calls_(options.max_calls),
      markers_{tokens.thinking_end, tokens.dsml},
      json_end_{.literal = Literal("}"), .effect = Effect::nothing, .next = Stage::after_json},
      stages_(make_stage_rules(options, tokens)) {
  const ThinkingStage thinking = options.thinking_initial_stage;
  const bool reasons = thinking == ThinkingStage::reasoning_start || thinking == ThinkingStage::reasoning_continuation;
  if (options.starts_in_tool_calls) {
    stage_ = Stage::calls;
  } else if (reasons) {
    stage_ = Stage::reasoning;
  }
  at_start_ = thinking == ThinkingStage::none || thinking == ThinkingStage::reasoning_start;
  matches_.resize(rules().rules.size());
}

std::span<const Delta> ReplyParser::feed(const Segment& segment) {
  begin_call();
  if (segment.text.empty()) {
    take_empty(segment.source);
    return deltas_;
  }
  if (segment.kind == SegmentKind::control_token && is_improved_ && !is_marker(segment.text)) {
    return deltas_;  // no text of the reply
  }
  std::size_t begin = 0;  // of the stage in this segment
  while (!finished_) {
    const auto found = segment.kind == SegmentKind::control_token ? find_control(segment, begin) : find_literal(segment, begin);
    if (!found) {
      settle(segment.text.substr(begin), segment.source);
      break;
    }
    leave_stage(*found, segment, begin);
    begin = found->end;
  }
  return deltas_;
}

std::span<const Delta> ReplyParser::finish(BackendFinish reason) {
  begin_call();
  if (finished_) {
    return deltas_;
  }
  release_held();
  release_at_end();
  Finished end;
  switch (reason) {
    case BackendFinish::stop:
      end.reason = num_calls_ > 0 ? FinishReason::tool_calls : FinishReason::stop;
      break;
    case BackendFinish::length:
      end.reason = FinishReason::length;
      break;
    case BackendFinish::content_filter:
      end.reason = FinishReason::content_filter;
      break;
    case BackendFinish::end_of_input:
      end.reason = FinishReason::end_of_input;
      break;
  }
  deltas_.emplace_back(end);
  finished_ = true;
  return deltas_;
}

/// The end of the input decides what waits: it is text, but for the half of a close tag in an improved value.
void ReplyParser::release_at_end() {
  const std::size_t dropped = is_improved_ && stage_ == Stage::value ? withheld() : 0;
  std::size_t left = stage_bytes_ == 0 ? 0 : waiting_bytes_ - std::min(dropped, waiting_bytes_);
  for (; first_waiting_ < num_waiting_ && stage_bytes_ > 0; ++first_waiting_) {
    const Waiting& front = waiting_[first_waiting_];
    const std::size_t size = std::min(left, front.text.size());
    if (size > 0 || front.text.empty()) {
      emit_text(std::string_view(front.text).substr(0, size), front.source);
    }
    left -= size;
  }
  if (is_improved_ && stage_ == Stage::value && !value_is_string_) {
    emit_arguments(raw_value_);
  }
  if (!prose_.empty() && num_calls_ == 0) {
    deltas_.emplace_back(ContentText{.text = prose_, .source = 0});
  }
}

bool ReplyParser::is_marker(std::string_view control_token) const { return std::ranges::find(markers_, control_token) != markers_.end(); }

std::uint64_t ReplyParser::oldest_source(std::uint64_t next) const {
  if (held_) {
    return held_->source;
  }
  return first_waiting_ < num_waiting_ ? waiting_[first_waiting_].source : next;
}

void ReplyParser::begin_call() {
  deltas_.clear();
  num_scratch_ = 0;
  if (first_waiting_ == num_waiting_) {
    first_waiting_ = num_waiting_ = 0;
  } else if (first_waiting_ > waiting_.size() / 2) {
    std::rotate(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(first_waiting_), waiting_.end());
    num_waiting_ -= first_waiting_;
    first_waiting_ = 0;
  }
}

std::optional<ReplyParser::Found> ReplyParser::find_literal(const Segment& segment, std::size_t begin) {
  const std::string_view text = segment.text;
  const StageRules& stage = rules();
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (follows_json() && ends_json(text[i])) {
      return Found{.rule = &json_end_, .end = i + 1, .length = 0, .before = stage_bytes_ + 1};
    }
    if (quiet_ && !follows_json()) {
      const std::size_t from = i;
      while (i < text.size() && !stage.starts[static_cast<unsigned char>(text[i])]) {
        ++i;
      }
      stage_bytes_ += i - from;
      if (i == text.size()) {
        break;
      }
    }
    if (std::optional<Found> found = advance(text[i], segment.kind)) {
      found->end = i + 1;
      return found;
    }
  }
  return std::nullopt;
}

/// Whether `byte` closes the outermost bracket.
bool ReplyParser::ends_json(char byte) {
  if (json_in_string_) {
    json_in_string_ = byte != '"' || json_escaped_;
    json_escaped_ = byte == '\\' && !json_escaped_;
    return false;
  }
  json_in_string_ = byte == '"';
  json_depth_ += byte == '{' || byte == '[' ? 1 : 0;
  const bool closes = (byte == '}' || byte == ']') && json_depth_ > 0;
  json_depth_ -= closes ? 1 : 0;
  return closes && json_depth_ == 0;
}

std::optional<ReplyParser::Found> ReplyParser::advance(char byte, SegmentKind kind) {
  const StageRules& stage = rules();
  bool quiet = true;
  for (std::size_t i = 0; i < matches_.size(); ++i) {
    const Literal& literal = stage.rules[i].literal;
    if (literal.prefix() == Prefix::start_of_stage && (stage_bytes_ > 0 || !at_start_)) {
      continue;
    }
    if (matches_[i].advance(literal, byte, kind)) {
      const std::size_t length = matches_[i].length();
      return Found{.rule = &stage.rules[i], .end = 0, .length = length, .before = stage_bytes_ + 1 - length};
    }
    quiet = quiet && matches_[i].length() == 0;
  }
  ++stage_bytes_;
  quiet_ = quiet;
  return std::nullopt;
}

std::optional<ReplyParser::Found> ReplyParser::find_control(const Segment& segment, std::size_t begin) {
  if (begin == segment.text.size()) {
    return std::nullopt;
  }
  const StageRules& stage = rules();
  quiet_ = true;
  for (std::size_t i = 0; i < matches_.size(); ++i) {
    if (matches_[i].advance_control(stage.rules[i].literal, segment.text)) {
      const std::size_t length = matches_[i].length();
      const std::size_t before = stage_bytes_ + segment.text.size() - length;
      return Found{.rule = &stage.rules[i], .end = segment.text.size(), .length = length, .before = before};
    }
    quiet_ = quiet_ && matches_[i].length() == 0;
  }
  stage_bytes_ += segment.text.size();
  return std::nullopt;
}

void ReplyParser::leave_stage(const Found& found, const Segment& segment, std::size_t begin) {
  release_held();
  const std::size_t here = found.end - begin;  // bytes of the stage in this segment
  const bool inside = found.length <= here;
  std::size_t left = inside ? waiting_bytes_ : waiting_bytes_ + here - found.length;  // waiting bytes before the literal
  bool cut = found.before == 0;
  for (; first_waiting_ < num_waiting_; ++first_waiting_) {
    const Waiting& front = waiting_[first_waiting_];
    const std::size_t size = std::min(left, front.text.size());
    if (!cut && (size > 0 || front.text.empty())) {
      emit_text(std::string_view(front.text).substr(0, size), front.source);
    }
    cut = cut || size < front.text.size();
    left -= size;
  }
  waiting_bytes_ = 0;
  if (inside && here > found.length) {
    emit_text(segment.text.substr(begin, here - found.length), segment.source);
  }
  if (found.rule->effect == Effect::stop) {
    deltas_.emplace_back(Finished{.reason = FinishReason::stop_sequence, .stop_sequence = found.rule->literal.bytes()});
    finished_ = true;
    return;
  }
  held_ = Held{.effect = found.rule->effect, .bracket = found.rule->literal.bytes()[0], .source = segment.source};
  const bool is_last_call = found.rule->effect == Effect::close_call && max_calls_ && num_calls_ >= *max_calls_;
  if (!inside || is_last_call) {
    release_held();
  }
  if (is_last_call) {
    deltas_.emplace_back(Finished{.reason = FinishReason::tool_calls, .stop_sequence = {}});
    finished_ = true;
    return;
  }
  enter_stage(*found.rule);
}

void ReplyParser::enter_stage(const Rule& rule) {
  switch (rule.effect) {
    case Effect::start_call:
      has_parameters_ = false;
      break;
    case Effect::open_string:
    case Effect::open_raw:
    case Effect::end_key_open:
      value_is_string_ = rule.effect != Effect::open_raw;
      raw_value_.clear();
      break;
    default:
      break;
  }
  at_start_ = rule.effect == Effect::lead_newline || rule.effect == Effect::open_content;
  if (rule.next == Stage::json) {
    prose_.clear();
    json_depth_ = rule.effect == Effect::json_bracket ? 1 : 0;
    json_in_string_ = json_escaped_ = false;
  }
  stage_ = rule.next;
  is_first_stage_ = false;
  stage_bytes_ = 0;
  quiet_ = true;
  matches_.assign(rules().rules.size(), Match());
}

void ReplyParser::settle(std::string_view rest, std::uint64_t source) {
  const std::size_t keep = withheld();
  if (keep < stage_bytes_ || stage_bytes_ == 0) {
    release_held();
  }
  if (rest.empty() || !keeps_text(stage_)) {
    return;
  }
  if (keep < stage_bytes_) {
    while (first_waiting_ < num_waiting_ && waiting_bytes_ + rest.size() - waiting_[first_waiting_].text.size() >= keep) {
      release_front();
    }
  }
  if (keep == 0) {
    emit_text(rest, source);
  } else {
    wait(rest, source);
  }
}

void ReplyParser::take_empty(std::uint64_t source) {
  if (finished_ || !keeps_text(stage_) || (stage_bytes_ == 0 && !is_first_stage_)) {
    return;
  }
  if (stage_bytes_ > 0 && withheld() == 0) {
    emit_text({}, source);
  } else {
    wait({}, source);
  }
}

void ReplyParser::wait(std::string_view text, std::uint64_t source) {
  if (num_waiting_ == waiting_.size()) {
    waiting_.emplace_back();
  }
  Waiting& slot = waiting_[num_waiting_++];
  slot.text.assign(text);
  slot.source = source;
  waiting_bytes_ += text.size();
}

std::size_t ReplyParser::withheld() const {
  std::size_t longest = 0;
  for (const Match& match : matches_) {
    longest = std::max(longest, match.length());
  }
  return longest;
}

void ReplyParser::release_front() {
  const Waiting& front = waiting_[first_waiting_++];
  waiting_bytes_ -= front.text.size();
  emit_text(front.text, front.source);
}

void ReplyParser::release_held() {
  if (held_) {
    const Held held = *held_;
    held_.reset();
    emit_held(held);
  }
}

}  // namespace deepinfer::recipe

#include "recipe/reply_stages.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::recipe {

Literal::Literal(std::string_view before, std::string_view marker, std::string_view after, Prefix prefix)
    : Literal(std::string(before).append(marker).append(after), prefix) {
  marker_begin_ = before.size();
  marker_end_ = marker_begin_ + marker.size();
}

Literal::Literal(std::string bytes, Prefix prefix) : bytes_(std::move(bytes)), prefix_(prefix) {
  check(!bytes_.empty(), "a literal has at least one byte");
  fall_back_.resize(bytes_.size());
  std::uint32_t border = 0;
  for (std::size_t i = 1; i < bytes_.size(); ++i) {
    while (border > 0 && bytes_[i] != bytes_[border]) {
      border = fall_back_[border - 1];
    }
    border += bytes_[i] == bytes_[border] ? 1 : 0;
    fall_back_[i] = border;
  }
}

void Match::fall_back(const Literal& literal) {
  matched_ = literal.fall_back_[matched_ - 1];
  newlines_ = 0;
}

bool Match::advance_begun(const Literal& literal, char byte, SegmentKind kind) {
  const bool spelled = kind == SegmentKind::token_text;
  while (literal.bytes_[matched_] != byte || (spelled && matched_ >= literal.marker_begin_ && matched_ < literal.marker_end_)) {
    if (matched_ == 0) {
      newlines_ = 0;
      return false;
    }
    fall_back(literal);
  }
  return ++matched_ == literal.bytes_.size();
}

bool Match::advance_control(const Literal& literal, std::string_view text) {
  const auto marker = std::string_view(literal.bytes_).substr(literal.marker_begin_, literal.marker_end_ - literal.marker_begin_);
  while (marker.empty() || matched_ != literal.marker_begin_ || text != marker) {
    if (matched_ == 0) {
      newlines_ = 0;
      return false;
    }
    fall_back(literal);
  }
  matched_ = literal.marker_end_;
  return matched_ == literal.bytes_.size();
}

namespace {

/// Collects the rules of one stage.
class RuleList {
 public:
  explicit RuleList(StageRules& stage) : stage_(stage) {}

  void add(std::string bytes, Stage next, Effect effect = Effect::nothing) { add(Literal(std::move(bytes)), next, effect); }

  void add(Literal literal, Stage next, Effect effect = Effect::nothing) {
    stage_.starts[static_cast<unsigned char>(literal.bytes()[0])] = true;
    if (literal.prefix() == Prefix::newlines) {
      stage_.starts['\n'] = true;
    }
    stage_.rules.push_back({.literal = std::move(literal), .effect = effect, .next = next});
  }

  void add_stops(const ParsingOptions& options) {
    for (const std::string& stop : options.stop_sequences) {
      if (!stop.empty()) {
        add(stop, Stage::finished, Effect::stop);
      }
    }
  }

  /// Officially any tag opens the calls. Improved: the tag of a block, or of a call without a block around it.
  void add_calls_opener(const ParsingOptions& options, const std::string& dsml) {
    if (!options.parse_tool_calls) {
      return;
    }
    if (options.conformance == Conformance::official) {
      add(Literal("<", dsml, "", Prefix::newlines), Stage::calls);
      return;
    }
    for (const std::string_view block : {" calls>", "tool_calls>"}) {
      add(Literal("<", dsml, block, Prefix::newlines), Stage::calls);
    }
    for (const std::string_view call : {" invoke name=\"", "invoke name=\""}) {
      add(Literal("<", dsml, call, Prefix::newlines), Stage::name);
    }
  }

  void add_lead_newline(Stage stage) { add(Literal("\n", Prefix::start_of_stage), stage, Effect::lead_newline); }

 private:
  StageRules& stage_;
};

void add_text_stages(std::array<StageRules, kNumStages>& stages, const ParsingOptions& options, const SpecialTokens& tokens) {
  const auto list = [&stages](Stage stage) { return RuleList(stages[static_cast<std::size_t>(stage)]); };

  RuleList reasoning = list(Stage::reasoning);
  reasoning.add_calls_opener(options, tokens.dsml);
  reasoning.add_lead_newline(Stage::reasoning);
  reasoning.add(Literal("", tokens.thinking_end, "", Prefix::newlines), Stage::content, Effect::open_content);

  RuleList content = list(Stage::content);
  if (options.parse_json_output) {
    content.add("```json\n", Stage::json);
    content.add("```\n", Stage::json);
    content.add("{", Stage::json, Effect::json_bracket);
    content.add("[", Stage::json, Effect::json_bracket);
  } else {
    content.add_stops(options);
  }
  content.add_calls_opener(options, tokens.dsml);
  content.add_lead_newline(Stage::content);
  content.add(Literal("", tokens.thinking_end, ""), Stage::content);

  RuleList json = list(Stage::json);
  json.add_stops(options);
  json.add("\n```", Stage::after_json);

  list(Stage::after_json).add_calls_opener(options, tokens.dsml);
}

/// The stages of one parameter. Officially a key keeps its quotes and ends at a blank.
void add_parameter_stages(std::array<StageRules, kNumStages>& stages, Conformance conformance) {
  const auto list = [&stages](Stage stage) { return RuleList(stages[static_cast<std::size_t>(stage)]); };
  RuleList value_type = list(Stage::value_type);
  value_type.add("true\">", Stage::value, Effect::open_string);
  value_type.add("false\">", Stage::value, Effect::open_raw);
  if (conformance == Conformance::official) {
    list(Stage::arguments).add("parameter name=", Stage::key, Effect::start_parameter);
    list(Stage::key).add(" ", Stage::value_type, Effect::end_key);
    return;
  }
  list(Stage::arguments).add("parameter name=\"", Stage::key, Effect::start_parameter);
  RuleList key = list(Stage::key);
  key.add("\" string=\"", Stage::value_type, Effect::end_key);
  key.add("\">", Stage::value, Effect::end_key_open);
  value_type.add("\">", Stage::value, Effect::open_string);
}

void add_call_stages(std::array<StageRules, kNumStages>& stages, const std::string& dsml, Conformance conformance) {
  const auto list = [&stages](Stage stage) { return RuleList(stages[static_cast<std::size_t>(stage)]); };

  RuleList calls = list(Stage::calls);
  calls.add("invoke name=\"", Stage::name);
  calls.add(Literal("</", dsml, "tool_calls>"), Stage::finished);
  calls.add(Literal("</", dsml, " calls>"), Stage::finished);

  list(Stage::name).add("\"", Stage::arguments, Effect::start_call);

  add_parameter_stages(stages, conformance);
  list(Stage::arguments).add(Literal("</", dsml, ""), Stage::calls, Effect::close_call);
  list(Stage::value).add(Literal("</", dsml, ""), Stage::arguments, Effect::close_value);
}

}  // namespace

std::array<StageRules, kNumStages> make_stage_rules(const ParsingOptions& options, const SpecialTokens& tokens) {
  std::array<StageRules, kNumStages> stages;
  add_text_stages(stages, options, tokens);
  add_call_stages(stages, tokens.dsml, options.conformance);
  return stages;
}

}  // namespace deepinfer::recipe

#include "recipe/reply_texts.h"

#include <variant>

namespace deepinfer::recipe::testing {

namespace {

struct Adder {
  ParsedReply& reply;

  void operator()(const ReasoningText& delta) const { reply.reasoning += delta.text; }
  void operator()(const ContentText& delta) const { reply.content += delta.text; }
  void operator()(const CallStart& delta) const { reply.calls.emplace_back(delta.name, ""); }
  void operator()(const CallArguments& delta) const { reply.calls.at(static_cast<std::size_t>(delta.index)).second += delta.text; }
  void operator()(const Finished& end) const {
    reply.finish = end.reason;
    reply.stop_sequence = end.stop_sequence;
  }
};

ParsingOptions thinking() { return {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_start}; }

ParsingOptions chat_with_stops(std::vector<std::string> stops) {
  ParsingOptions options;
  options.stop_sequences = std::move(stops);
  return options;
}

std::vector<ReplyCase> make_cases() {
  const std::string call =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n"
      "<｜DSML｜ parameter name=\"city\" string=\"true\">Par\"is\\\n</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"days\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"now\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const std::string v4_call =
      "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">x</y</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n</｜DSML｜tool_calls>after";
  ParsingOptions required = {.parse_tool_calls = true, .starts_in_tool_calls = true};
  ParsingOptions continued = {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_continuation};
  ParsingOptions json_mode = {.parse_tool_calls = true, .parse_json_output = true};
  std::vector<ReplyCase> cases = {
      {"thinking, content and calls", thinking(), "\n\nLet me <see>.\n\n</think>\n\nThe a < b.\n\n" + call + "\nlost"},
      {"V4 tags", thinking(), "r</think>" + v4_call},
      {"calls straight out of the reasoning", thinking(), "thinking\n\n" + call},
      {"no end of the reasoning", thinking(), "all of it\n\n</thin"},
      {"a second end of the reasoning", thinking(), "a</think>b</think>\nc"},
      {"newlines that break off a marker", thinking(), "a<\n\n</</｜\n</think>\n<｜DSML\n<｜DSM<｜DSML｜"},
      {"continued reasoning keeps its newlines", continued, "\n\na\n</think>\n\nb"},
      {"calls opened by the prompt", required, "\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"},
      {"stop sequences that overlap", chat_with_stops({"abab", "bb", "aabc"}), "\nxaabaabababb"},
      {"a stop sequence that almost comes", chat_with_stops({"STOP now", "STOPS"}), "a STOP noSTOP STOP n"},
      {"a stop sequence is not looked for in reasoning",
       {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_start, .stop_sequences = {"x"}},
       "axb</think>cxd"},
      {"bare JSON", json_mode, "\nHere: {\"a\": [1, 2]}\n``"},
      {"fenced JSON", json_mode, "```json\n{\"a\": 1}\n```\nThat was it.\n\n" + call},
      {"cut inside a value", thinking(), "</think>" + call.substr(0, call.find("is\\")) + "</｜DS"},
      {"an empty call name", thinking(), "</think><｜DSML｜ invoke name=\"\">parameter name=k string=\"fals\"true\">v"},
      {"beyond ASCII", chat_with_stops({"é😀"}), "çé😁é\xF0\x9F\x98\x80 tail"},
      {"keys and values that are no JSON", thinking(),
       "</think><｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a \\b\" string=\"false\">[1, </｜DSML｜ parameter>"
       "<｜DSML｜ parameter name=\"c\">plain</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>"},
      {"a quoted marker", thinking(), "r</think>A block starts with <｜DSML｜ and then, like <｜DSML｜ calls, goes on."},
      {"no JSON in JSON mode", json_mode, "I would rather not.\n"},
      {"nested JSON and a call", json_mode, "So: {\"a\": \"}\\\"]\", \"b\": [{}, []]} and more\n\n" + call},
      {"nothing", thinking(), ""},
  };
  const std::vector<ReplyCase> official = cases;
  for (ReplyCase reply : official) {
    reply.name += " (improved)";
    reply.options.conformance = Conformance::improved;
    cases.push_back(std::move(reply));
  }
  return cases;
}

}  // namespace

void add(ParsedReply& reply, const Delta& delta) { std::visit(Adder{reply}, delta); }

ParsedReply parse_pieces(const ParsingOptions& options, const std::vector<std::string_view>& pieces, BackendFinish finish) {
  ReplyParser parser(options, SpecialTokens());
  ParsedReply reply;
  std::uint64_t source = 0;
  for (const std::string_view piece : pieces) {
    for (const Delta& delta : parser.feed({.text = piece, .kind = SegmentKind::text, .source = source++})) {
      add(reply, delta);
    }
  }
  for (const Delta& delta : parser.finish(finish)) {
    add(reply, delta);
  }
  return reply;
}

const std::vector<ReplyCase>& reply_cases() {
  static const std::vector<ReplyCase> cases = make_cases();
  return cases;
}

}  // namespace deepinfer::recipe::testing

// Fuzz target: any bytes in any pieces, with control tokens and JSON mode, keep the parser sound; what it gives never exceeds what it got.
// The first byte chooses the options; then every piece is a byte (kind and length) followed by its bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "recipe/reply_parser.h"

namespace {

using namespace deepinfer::recipe;

ParsingOptions options_of(std::uint8_t choice) {
  ParsingOptions options;
  options.parse_tool_calls = (choice & 1) != 0;
  options.starts_in_tool_calls = (choice & 3) == 3;
  options.parse_json_output = (choice & 4) != 0;
  options.thinking_initial_stage = static_cast<ThinkingStage>((choice >> 3) & 3);
  if ((choice & 32) != 0) {
    options.stop_sequences = {"abab", "b", "\n\n</"};
  }
  return options;
}

struct Text {
  std::string_view operator()(const ReasoningText& delta) const { return delta.text; }
  std::string_view operator()(const ContentText& delta) const { return delta.text; }
  std::string_view operator()(const CallStart& delta) const { return delta.name; }
  std::string_view operator()(const CallArguments& delta) const { return delta.text; }
  std::string_view operator()(const Finished& delta) const { return delta.stop_sequence; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  ReplyParser parser(options_of(data[0]), SpecialTokens());
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::uint64_t source = 0;
  std::size_t given = 0;
  const auto take = [&given](std::span<const Delta> deltas) {
    for (const Delta& delta : deltas) {
      const std::string_view text = std::visit(Text(), delta);
      given += static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x'));
    }
  };
  while (!rest.empty()) {
    const auto head = static_cast<std::uint8_t>(rest[0]);
    rest.remove_prefix(1);
    const std::string_view piece = rest.substr(0, head & 63);
    rest.remove_prefix(piece.size());
    const SegmentKind kind = head < 128 ? SegmentKind::text : head < 192 ? SegmentKind::token_text : SegmentKind::control_token;
    take(parser.feed({.text = piece, .kind = kind, .source = source++}));
    deepinfer::check(parser.oldest_source(source) <= source, "a waiting segment was fed");
  }
  take(parser.finish(BackendFinish::stop));
  deepinfer::check(parser.finished(), "a reply ends");
  deepinfer::check(given <= static_cast<std::size_t>(std::count(data, data + size, 'x')), "a parser gives no text it was not given");
  return 0;
}

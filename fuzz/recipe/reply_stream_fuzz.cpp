// Fuzz target: any reply in any pieces gives events of valid JSON and the same complete response as the whole reply at once.
// The first byte chooses API and options, the second the sizes of the pieces; the rest is the text of the reply.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "recipe/reply_stream.h"

namespace {

using deepinfer::recipe::Api;
using deepinfer::recipe::BackendFinish;
using deepinfer::recipe::Event;
using deepinfer::recipe::ReplyOpening;
using deepinfer::recipe::ReplyStream;
using deepinfer::recipe::ReplyStreamOptions;
using deepinfer::recipe::ThinkingStage;

ReplyStreamOptions options_of(std::uint8_t choice) {
  ReplyStreamOptions options;
  options.api = choice % 3 == 0 ? Api::chat : choice % 3 == 1 ? Api::messages : Api::responses;
  options.id = "id";
  options.model = "model";
  options.parsing.parse_tool_calls = (choice & 4) != 0;
  options.parsing.starts_in_tool_calls = (choice & 12) == 12;
  if ((choice & 16) != 0) {
    options.parsing.thinking_initial_stage = ThinkingStage::reasoning_start;
  }
  options.opening = (choice & 16) != 0 ? ReplyOpening::reasoning : ReplyOpening::plain;
  if ((choice & 32) != 0) {
    options.parsing.stop_sequences = {"stop", "\n\n", "aab"};
  }
  options.responses.custom_tools = {"apply_patch"};
  options.responses.has_client_tool_search = (choice & 64) != 0;
  options.random_bits = [] { return std::uint64_t{0}; };
  options.unix_time = [] { return std::int64_t{0}; };
  return options;
}

void check_events(std::span<const Event> events) {
  constexpr deepinfer::json::ParseLimits kLimits{.max_depth = 256};
  for (const Event& event : events) {
    deepinfer::check(deepinfer::json::parse(event.data, kLimits).has_value(), "an event is valid JSON");
  }
}

/// The next piece: whole characters only, because events are UTF-8.
std::string_view take_piece(std::string_view& rest, std::size_t size) {
  std::size_t end = std::min(size, rest.size());
  while (end < rest.size() && (static_cast<unsigned char>(rest[end]) & 0xC0) == 0x80) {
    ++end;
  }
  const std::string_view piece = rest.substr(0, end);
  rest.remove_prefix(end);
  return piece;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string text = deepinfer::utf8::replace_invalid({reinterpret_cast<const char*>(data) + 2, size - 2});
  ReplyStream whole(options_of(data[0]));
  check_events(whole.text(text, 0));
  check_events(whole.finish(BackendFinish::stop));

  ReplyStream pieces(options_of(data[0]));
  std::string_view rest = text;
  std::size_t piece_size = data[1];
  while (!rest.empty()) {
    piece_size = piece_size * 5 % 31 + 1;
    check_events(pieces.text(take_piece(rest, piece_size), 0));
  }
  check_events(pieces.finish(BackendFinish::stop));
  deepinfer::check(pieces.response() == whole.response(), "the pieces of a reply do not change the response");
  return 0;
}

// The input text of a custom tool call, taken out of the JSON arguments while they arrive: `{"input": "…"}` gives the string.
// Arguments of any other form are the input as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::recipe {

class CustomToolInput {
 public:
  /// Appends to `out` what `piece` of the arguments adds to the input.
  void take(std::string_view piece, std::string& out);
  /// Appends what was still undecided; the arguments are complete.
  void finish(std::string& out);

 private:
  enum class State : std::uint8_t { opening, string, closed, other };

  void take_opening(char c, std::string& out);
  void take_string(char c, std::string& out);
  void take_escape(char c, std::string& out);
  void end_escape(std::string_view replacement, std::string& out);
  void decode_units(std::string& out);

  State state_ = State::opening;
  std::string opening_;         // all of it, while undecided
  std::size_t part_ = 0;        // of the opening: the brace, the key, the colon, the quote
  std::size_t part_bytes_ = 0;  // seen of that part
  std::string escape_;          // an escape sequence that is not complete; empty when there is none
  std::size_t escape_chars_ = 0;
};

}  // namespace deepinfer::recipe

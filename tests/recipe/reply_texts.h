// Replies of a model, well formed and not, and what a parse of them amounts to: shared by the tests of the reply parser.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/delta.h"
#include "recipe/parsing_options.h"
#include "recipe/reply_parser.h"

namespace deepinfer::recipe::testing {

/// A reply without its pieces: texts joined, calls complete.
struct ParsedReply {
  std::string reasoning;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  ///< name, arguments
  FinishReason finish = FinishReason::end_of_input;
  std::string stop_sequence;

  friend bool operator==(const ParsedReply&, const ParsedReply&) = default;
};

/// Adds what a delta says.
void add(ParsedReply& reply, const Delta& delta);

/// Parses `pieces` one after the other as text, then ends the input with `finish`.
ParsedReply parse_pieces(const ParsingOptions& options, const std::vector<std::string_view>& pieces,
                         BackendFinish finish = BackendFinish::stop);

struct ReplyCase {
  std::string name;
  ParsingOptions options;
  std::string text;
};

/// Replies that visit every stage and every literal, each with the options that make it interesting.
const std::vector<ReplyCase>& reply_cases();

}  // namespace deepinfer::recipe::testing

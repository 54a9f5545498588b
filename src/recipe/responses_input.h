// The input items of a Responses request as messages: grouping of assistant items, pairing of calls and outputs.
#pragma once

#include <vector>

#include "recipe/responses_body.h"

namespace deepinfer::recipe {

/// The functions that one tool_search_output item found, in the order of the items.
using FoundFunctions = std::vector<std::vector<std::string>>;

/// Instructions and input as messages. `found` names the functions of each tool_search_output of V4.1. The calls of one turn keep the order
/// they came in; officially they are sorted by their ids.
[[nodiscard]] std::expected<std::vector<Message>, RequestError> convert_responses_input(ResponsesBody& body, const FoundFunctions& found,
                                                                                        ModelVersion version, std::string_view image_token,
                                                                                        Conformance conformance);

}  // namespace deepinfer::recipe

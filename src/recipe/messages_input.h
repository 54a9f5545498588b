// The system setting and messages of a Messages request as messages of the conversation: blocks, roles, pairing of tool uses and
// results.
#pragma once

#include <expected>
#include <span>
#include <vector>

#include "recipe/messages_body.h"
#include "recipe/request_error.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

/// `known_tools`: what tool references and additions may name. Consumes the messages of `body`.
[[nodiscard]] std::expected<std::vector<Message>, RequestError> convert_messages_input(MessagesBody& body,
                                                                                       std::span<const ToolDeclaration> known_tools,
                                                                                       ModelVersion version, const ConvertOptions& options);

}  // namespace deepinfer::recipe

// The one custom tool of the Responses API that models know: apply_patch, offered as a function of one string.
#pragma once

#include <string_view>

#include "recipe/conversation.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

inline constexpr std::string_view kApplyPatch = "apply_patch";

[[nodiscard]] ToolDeclaration apply_patch_declaration(ModelVersion version);

}  // namespace deepinfer::recipe

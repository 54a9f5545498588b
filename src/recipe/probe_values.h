// The values of the probe protocol as JSON: conversations and options read, results written (spec/recipe_probe.md sections 1 to 4).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/convert.h"
#include "recipe/render.h"

namespace deepinfer::recipe {

/// `options` of a request line; absent ones keep their defaults.
[[nodiscard]] Result<ConvertOptions> read_convert_options(const json::Value* options);
[[nodiscard]] SpecialTokens read_special_tokens(const json::Value* options);

/// A `conversation` of a render line. Error (invalid_argument): contradictory or malformed settings.
[[nodiscard]] Result<Conversation> read_conversation(const json::Value& value);
[[nodiscard]] std::optional<ModelVersion> read_version(const json::Value& value);
/// Images as in a conversation. Error (invalid_argument): malformed ones.
[[nodiscard]] Result<std::vector<ImageSource>> read_image_sources(const json::Value& value);
/// `high` when absent; nullopt for another value.
[[nodiscard]] std::optional<ImageDetail> read_image_detail(const json::Value* value);

[[nodiscard]] std::string_view name_of(ModelVersion version);
[[nodiscard]] json::Value to_json(const Conversation& conversation);
[[nodiscard]] json::Value to_json(const ImageSource& image);
[[nodiscard]] json::Value to_json(const InferenceOptions& options);
[[nodiscard]] json::Value to_json(const ParsingOptions& options);
[[nodiscard]] json::Value to_json(const ResponsesEcho& echo);
/// The `error` object of an answer.
[[nodiscard]] json::Value to_json(const RequestError& error);

}  // namespace deepinfer::recipe

// The Responses request as its JSON spells it: types and required members, no meaning. Meaning: responses_convert.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "recipe/body_reader.h"
#include "recipe/request_settings.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

// Tools.

/// A free-form tool; only apply_patch has a meaning.
struct ResponsesCustomTool {
  std::string name;
};
using ResponsesNamespacedTool = std::variant<ToolDeclaration, ResponsesCustomTool>;
struct ResponsesNamespace {
  std::string name;
  std::optional<std::string> description;
  std::vector<ResponsesNamespacedTool> tools;
};
struct ResponsesWebSearch {
  std::string_view type;            ///< "web_search" or its dated name
  json::Value search_context_size;  ///< as reported: a string or null
  json::Value user_location;        ///< as reported: an object or null
};
enum class ToolSearchExecution { client, server };
struct ResponsesToolSearch {
  std::optional<ToolSearchExecution> execution;
  std::optional<std::string> description;
  std::optional<json::Value> parameters;
};
/// A type this API does not know; ignored.
struct ResponsesUnknownTool {};
using ResponsesTool =
    std::variant<ResponsesUnknownTool, ToolDeclaration, ResponsesNamespace, ResponsesCustomTool, ResponsesWebSearch, ResponsesToolSearch>;

struct ResponsesToolChoice {
  enum class Kind { automatic, none, required, named, web_search };
  Kind kind = Kind::automatic;
  std::string name;  ///< of a named choice
  json::Value echo = "auto";
};

// Input.

struct ResponsesText {
  std::string text;
};
struct ResponsesImage {
  std::optional<std::string> image_url;
  std::optional<std::string> file_id;
  ImageDetail detail = ImageDetail::high;
};
struct ResponsesFile {};
using ResponsesPart = std::variant<ResponsesText, ResponsesImage, ResponsesFile>;
using ResponsesContent = std::vector<ResponsesPart>;  ///< a string is one text

enum class ResponsesRole { user, assistant, system, developer };

struct ResponsesMessage {
  ResponsesRole role = ResponsesRole::user;
  ResponsesContent content;
};
struct ResponsesFunctionCall {
  std::string call_id;
  std::string name;
  std::string arguments;
  std::optional<std::string> name_space;
};
struct ResponsesCustomCall {
  std::string call_id;
  std::string name;
  std::string input;
};
struct ResponsesToolSearchCall {
  std::string call_id;
  json::Value arguments;
};
/// Of a function or custom call.
struct ResponsesCallOutput {
  std::optional<std::string> call_id;
  ResponsesContent output;
};
struct ResponsesToolSearchOutput {
  std::string call_id;
  std::vector<ResponsesTool> tools;
};
struct ResponsesReasoning {
  std::vector<std::string> texts;
};
/// An item this API does not know or does not need; skipped.
struct ResponsesUnknownItem {};
using ResponsesItem = std::variant<ResponsesUnknownItem, ResponsesMessage, ResponsesFunctionCall, ResponsesCustomCall,
                                   ResponsesToolSearchCall, ResponsesCallOutput, ResponsesToolSearchOutput, ResponsesReasoning>;

using ResponsesInput = std::variant<std::string, std::vector<ResponsesItem>>;

struct ResponsesFormat {
  enum class Kind { text, json_object, json_schema };
  Kind kind = Kind::text;
  json::Value schema;
  bool strict = false;
  json::Value echo = json::Object{{"type", "text"}};
};

struct ResponsesBody {
  std::string model;
  std::optional<ResponsesInput> input;
  std::optional<std::string> instructions;
  std::optional<bool> stream;
  std::vector<ResponsesTool> tools;
  ResponsesToolChoice tool_choice;
  std::optional<ResponsesFormat> format;
  json::Value verbosity;
  std::optional<RequestedEffort> effort;
  json::Value reasoning_echo = ResponsesEcho{}.reasoning;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::uint8_t> top_logprobs;
  std::optional<std::uint32_t> max_output_tokens;
  std::optional<std::string> user;
};

[[nodiscard]] ResponsesBody read_responses_body(Reader reader);

}  // namespace deepinfer::recipe

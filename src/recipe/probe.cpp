#include "recipe/probe.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/json.h"
#include "recipe/base64.h"
#include "recipe/convert.h"
#include "recipe/image_probe.h"
#include "recipe/probe_values.h"
#include "recipe/render.h"
#include "recipe/stream_probe.h"

namespace deepinfer::recipe {

namespace {

using json::Array;
using json::Object;
using json::Value;

/// The result of an operation, or the `error` object of the answer.
using Outcome = std::expected<Value, Value>;

std::unexpected<Value> failure(std::string_view stage, std::string message) {
  return std::unexpected(Value(Object{{"stage", stage}, {"message", std::move(message)}}));
}

bool flag(const Value& line, std::string_view key) {
  const Value* value = line.find(key);
  return value != nullptr && value->as_bool() != nullptr && *value->as_bool();
}

/// A line that does not follow the protocol.
std::unexpected<Value> bad_line(std::string message) { return failure("setup", std::move(message)); }

Array ids_json(const std::vector<TokenId>& ids) {
  Array out;
  out.reserve(ids.size());
  for (const TokenId id : ids) {
    out.emplace_back(id.value);
  }
  return out;
}

std::expected<std::string, Value> body_of(const Value& line) {
  const Value* base64 = line.find("body_base64");
  if (base64 != nullptr && base64->as_string() != nullptr) {
    std::optional<std::string> bytes = decode_forgiving_base64(*base64->as_string());
    return bytes ? std::expected<std::string, Value>(std::move(*bytes)) : bad_line("`body_base64` is not base64");
  }
  const Value* body = line.find("body");
  if (body == nullptr) {
    return bad_line("a request line needs `body`");
  }
  return body->as_string() != nullptr ? *body->as_string() : json::to_text(*body);
}

std::optional<Api> api_of(const Value& line) {
  constexpr std::array<std::pair<std::string_view, Api>, 3> kApis{
      {{"chat", Api::chat}, {"messages", Api::messages}, {"responses", Api::responses}}};
  const Value* name = line.find("api");
  for (const auto& [text, api] : kApis) {
    if (name != nullptr && *name == Value(text)) {
      return api;
    }
  }
  return std::nullopt;
}

/// Converts the request of a line.
std::expected<ConvertedRequest, Value> convert_line(const ProbeContext& context, const Value& line) {
  const std::optional<Api> api = api_of(line);
  if (!api) {
    return bad_line("`api` is chat, messages or responses");
  }
  const std::expected<std::string, Value> body = body_of(line);
  if (!body) {
    return std::unexpected(body.error());
  }
  Result<ConvertOptions> options = read_convert_options(line.find("options"));
  if (!options) {
    return bad_line("`options`: " + options.error().message);
  }
  options->conformance = context.conformance;
  std::expected<ConvertedRequest, RequestError> request = convert(*api, *body, *options);
  if (!request) {
    return std::unexpected(to_json(request.error()));
  }
  return std::move(*request);
}

Array resolve_all(const ConvertedRequest& request, const Value& pairs) {
  Array out;
  for (const Value& pair : pairs.as_array() != nullptr ? *pairs.as_array() : Array{}) {
    const Array* numbers = pair.as_array();
    const auto number = [numbers](std::size_t i) -> std::uint64_t {
      const json::Number* value = numbers != nullptr && i < numbers->size() ? (*numbers)[i].as_number() : nullptr;
      return value == nullptr ? 0 : value->as_uint64().value_or(0);
    };
    const auto resolved = resolve_max_tokens(request, number(0), number(1));
    if (resolved) {
      out.emplace_back(std::uint64_t{*resolved});
    } else {
      out.emplace_back(Object{{"status", resolved.error().status}, {"body", resolved.error().body}});
    }
  }
  return out;
}

Outcome convert_operation(const ProbeContext& context, const Value& line) {
  const std::expected<ConvertedRequest, Value> request = convert_line(context, line);
  if (!request) {
    return std::unexpected(request.error());
  }
  Object out{{"model", request->model},
             {"model_version", name_of(request->version)},
             {"stream", request->stream},
             {"conversation", to_json(request->conversation)},
             {"inference_options", to_json(request->inference)},
             {"parsing_options", to_json(request->parsing)}};
  if (api_of(line) == Api::responses) {
    Object names;
    for (const auto& [function, place] : request->responses.namespace_tools) {
      names.append(function, Array{place.first, place.second});
    }
    out.append("namespace_tool_map", std::move(names));
    out.append("echo", to_json(request->responses.echo));
  }
  if (const Value* pairs = line.find("resolve")) {
    out.append("resolved_max_tokens", resolve_all(*request, *pairs));
  }
  return out;
}

Outcome render_and_report(const ProbeContext& context, const Value& line, const Conversation& conversation, ModelVersion version,
                          const ParsingOptions* parsing) {
  const Prompt prompt = render(conversation, version, read_special_tokens(line.find("options")));
  Array ranges;
  for (const SpecialRange& range : prompt.special_ranges) {
    ranges.emplace_back(Array{std::uint64_t{range.begin}, std::uint64_t{range.end}});
  }
  Array images;
  for (const ImageSource* image : prompt.images) {
    images.push_back(to_json(*image));
  }
  Object out{
      {"version", name_of(version)}, {"prompt", prompt.text}, {"special_ranges", std::move(ranges)}, {"image_sources", std::move(images)}};
  if (parsing != nullptr) {
    out.append("parsing_options", to_json(*parsing));
  }
  if (flag(line, "encode")) {
    if (context.tokenizer == nullptr) {
      return failure("setup", "no tokenizer given");
    }
    const Result<std::vector<TokenId>> ids = encode_prompt(prompt, *context.tokenizer);
    if (!ids) {
      return failure("encode", ids.error().message);
    }
    out.append("token_ids", ids_json(*ids));
  }
  return out;
}

Outcome render_operation(const ProbeContext& context, const Value& line) {
  const Value* given_version = line.find("version");
  const std::optional<ModelVersion> version = given_version == nullptr ? std::nullopt : read_version(*given_version);
  if (const Value* direct = line.find("conversation")) {
    const Result<Conversation> conversation = read_conversation(*direct);
    if (!conversation) {
      return failure("conversation", conversation.error().message);
    }
    return version ? render_and_report(context, line, *conversation, *version, nullptr) : bad_line("`version` is v4 or v4.1");
  }
  const std::expected<ConvertedRequest, Value> request = convert_line(context, line);
  if (!request) {
    return std::unexpected(request.error());
  }
  return render_and_report(context, line, request->conversation, version.value_or(request->version), &request->parsing);
}

Outcome encode_operation(const ProbeContext& context, const Value& line) {
  if (context.tokenizer == nullptr) {
    return failure("setup", "no tokenizer given");
  }
  const Value* text = line.find("text");
  if (text == nullptr || text->as_string() == nullptr) {
    return bad_line("`text` is a string");
  }
  const auto mode = flag(line, "plain") ? tokenizer::AddedTokens::ignore : tokenizer::AddedTokens::recognise;
  return Object{{"token_ids", ids_json(context.tokenizer->encode(*text->as_string(), mode))}};
}

Outcome stream_operation(const ProbeContext& context, const Value& line) {
  const std::expected<ConvertedRequest, Value> request = convert_line(context, line);
  if (!request) {
    return std::unexpected(request.error());
  }
  ReplyStreamOptions options = reply_stream_options(*api_of(line), *request);
  options.special_tokens = read_special_tokens(line.find("options"));
  options.tokenizer = context.tokenizer;
  Result<Value> result = run_stream_probe(std::move(options), line);
  return result ? Outcome(std::move(*result)) : bad_line(result.error().message);
}

Outcome run_operation(const ProbeContext& context, const Value& line) {
  const Value* name = line.find("op");
  if (name == nullptr || name->as_string() == nullptr) {
    return bad_line("`op` is a string");
  }
  if (*name->as_string() == "convert") {
    return convert_operation(context, line);
  }
  if (*name->as_string() == "render") {
    return render_operation(context, line);
  }
  if (*name->as_string() == "encode") {
    return encode_operation(context, line);
  }
  if (*name->as_string() == "stream") {
    return stream_operation(context, line);
  }
  if (*name->as_string() == "image") {
    return run_image_probe(line);
  }
  return bad_line("unknown operation `" + *name->as_string() + "`");
}

}  // namespace

std::string answer_probe_line(const ProbeContext& context, std::string_view line) {
  constexpr json::ParseLimits kLineLimits{.max_depth = 256};
  const Result<Value> request = json::parse(line, kLineLimits);
  const Outcome outcome = request ? run_operation(context, *request) : bad_line(request.error().message);
  return json::to_text(outcome ? Object{{"ok", true}, {"result", *outcome}} : Object{{"ok", false}, {"error", outcome.error()}});
}

}  // namespace deepinfer::recipe

#include "apps/chat_request.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "apps/files.h"
#include "recipe/base64.h"

namespace deepinfer::apps {

void add_chat_flags(CLI::App& command, ChatFlags& flags) {
  const std::string group = "Request";
  command.add_option("--system", flags.system, "system message")->group(group);
  command.add_option("--tools", flags.tools_file, "JSON file with a list of tools, as in the API")->group(group);
  auto* const format = command.add_option_group(group);
  format->add_option("--response-format", flags.response_format_file, "JSON file with a response_format, as in the API");
  format->add_option("--json-schema", flags.json_schema_file, "JSON file with a schema that the reply fits");
  format->add_option("--regex", flags.regex, "regular expression that the reply fits");
  format->add_option("--grammar", flags.grammar_file, "EBNF file that the reply fits");
  format->require_option(0, 1);
  command.add_option("--thinking", flags.thinking, "think before the answer: on or off (default: the API's, on)")
      ->check(CLI::IsMember({"on", "off"}))
      ->group(group);
  command.add_option("--effort", flags.effort, "how much to think: low, high, xhigh or max")
      ->check(CLI::IsMember({"low", "high", "xhigh", "max"}))
      ->group(group);
  command.add_option("--temperature", flags.temperature, "0 (always the likeliest token) to 2; with thinking it is always 1, as the model was tuned")->check(CLI::Range(0.0, 2.0))->group(group);
  command.add_option("--top-p", flags.top_p, "only tokens that make up this probability; more than 0, at most 1")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  CLI::Option* const strict = command
                                  .add_flag("--strict-official", flags.strict_official,
                                            "only what the official package does: its prompt, its reading of the reply, no sampling extras")
                                  ->group(group);
  command.add_option("--top-k", flags.top_k, "only the k likeliest tokens; -1: all")
      ->check(CLI::Range(-1, 1 << 30))
      ->group(group)
      ->excludes(strict);
  command.add_option("--min-p", flags.min_p, "only tokens at least this fraction as likely as the likeliest; 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group)
      ->excludes(strict);
  command.add_option("--presence-penalty", flags.presence_penalty, "-2 to 2; above 0: fewer tokens that came already")
      ->check(CLI::Range(-2.0, 2.0))
      ->group(group)
      ->excludes(strict);
  command.add_option("--frequency-penalty", flags.frequency_penalty, "-2 to 2; above 0: the fewer the more often they came")
      ->check(CLI::Range(-2.0, 2.0))
      ->group(group)
      ->excludes(strict);
  command.add_option("--repetition-penalty", flags.repetition_penalty, "above 1: fewer tokens of prompt and reply")
      ->check(CLI::Range(0.01, 10.0))
      ->group(group)
      ->excludes(strict);
  command.add_option("--max-tokens", flags.max_tokens, "longest reply in tokens (default: the API's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31))
      ->group(group);
  command.add_option("--seed", flags.seed, "same seed, same reply (default: random)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->group(group);
  command.add_option("--stop", flags.stop, "end the reply before this text; may be repeated")->group(group);
  command.add_flag("--ignore-eos", flags.ignore_eos, "go on after the model's own end, until --max-tokens")->group(group)->excludes(strict);
}

namespace {

/// The response_format of --json-schema, --regex and --grammar.
Result<std::optional<json::Value>> constraint_format(const ChatFlags& flags) {
  if (!flags.json_schema_file.empty()) {
    Result<json::Value> schema = read_json_file(flags.json_schema_file);
    if (!schema) {
      return std::unexpected(std::move(schema.error()));
    }
    return json::Object{{"type", "json_schema"}, {"json_schema", json::Object{{"name", "reply"}, {"schema", *std::move(schema)}}}};
  }
  if (!flags.grammar_file.empty()) {
    Result<std::string> grammar = read_file(flags.grammar_file);
    if (!grammar) {
      return std::unexpected(std::move(grammar.error()));
    }
    return json::Object{{"type", "ebnf"}, {"grammar", *std::move(grammar)}};
  }
  if (!flags.regex.empty()) {
    return json::Object{{"type", "regex"}, {"regex", flags.regex}};
  }
  return std::nullopt;
}

}  // namespace

Result<json::Object> chat_settings(const ChatFlags& flags, const std::string& model, ReplyForm form) {
  json::Object out{{"model", model}, {"stream", form == ReplyForm::stream}};
  if (form == ReplyForm::stream) {
    out.set("stream_options", json::Object{{"include_usage", true}});
  }
  for (const auto& [name, file] : {std::pair("tools", &flags.tools_file), std::pair("response_format", &flags.response_format_file)}) {
    if (file->empty()) {
      continue;
    }
    Result<json::Value> value = read_json_file(*file);
    if (!value) {
      return std::unexpected(std::move(value.error()));
    }
    out.set(name, std::move(*value));
  }
  if (auto format = constraint_format(flags); !format) {
    return std::unexpected(std::move(format.error()));
  } else if (*format) {
    out.set("response_format", **std::move(format));
  }
  if (!flags.thinking.empty()) {
    out.set("thinking", json::Object{{"type", flags.thinking == "on" ? "enabled" : "disabled"}});
  }
  if (!flags.effort.empty()) {
    out.set("reasoning_effort", flags.effort);
  }
  if (flags.temperature) {
    out.set("temperature", *flags.temperature);
  }
  for (const auto& [name, value] :
       {std::pair("top_p", flags.top_p), std::pair("min_p", flags.min_p), std::pair("presence_penalty", flags.presence_penalty),
        std::pair("frequency_penalty", flags.frequency_penalty), std::pair("repetition_penalty", flags.repetition_penalty)}) {
    if (value) {
      out.set(name, *value);
    }
  }
  if (flags.top_k) {
    out.set("top_k", *flags.top_k);
  }
  if (flags.ignore_eos) {
    out.set("ignore_eos", true);
  }
  if (flags.max_tokens) {
    out.set("max_tokens", *flags.max_tokens);
  }
  if (flags.seed) {
    out.set("seed", *flags.seed);
  }
  if (!flags.stop.empty()) {
    out.set("stop", json::Array(flags.stop.begin(), flags.stop.end()));
  }
  return out;
}

std::string chat_body(json::Object settings, json::Array messages) {
  settings.set("messages", std::move(messages));
  return json::to_text(std::move(settings));
}

json::Value chat_message(std::string_view role, std::string_view content) { return json::Object{{"role", role}, {"content", content}}; }

namespace {

/// By the first bytes; empty for what is no image that models take.
std::string_view media_type(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG")) {
    return "image/png";
  }
  if (bytes.starts_with("\xFF\xD8\xFF")) {
    return "image/jpeg";
  }
  if (bytes.starts_with("GIF8")) {
    return "image/gif";
  }
  return bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP") ? "image/webp" : "";
}

}  // namespace

Result<json::Value> user_message(std::string_view text, std::span<const std::filesystem::path> files) {
  if (files.empty()) {
    return chat_message("user", text);
  }
  json::Array parts{json::Object{{"type", "text"}, {"text", text}}};
  for (const std::filesystem::path& file : files) {
    Result<std::string> bytes = read_file(file);
    if (!bytes) {
      return std::unexpected(std::move(bytes.error()));
    }
    const std::string_view type = media_type(*bytes);
    if (type.empty()) {
      return fail(ErrorKind::invalid_argument, file.string() + " is no image: give WebP, PNG, JPEG or GIF");
    }
    std::string url = "data:" + std::string(type) + ";base64," + recipe::encode_base64(*bytes);
    parts.push_back(json::Object{{"type", "image_url"}, {"image_url", json::Object{{"url", std::move(url)}}}});
  }
  return json::Object{{"role", "user"}, {"content", std::move(parts)}};
}

Result<json::Array> messages_of(json::Value value, const std::string& origin) {
  if (json::Object* const object = value.as_object()) {
    if (json::Value* const inner = object->find("messages")) {
      value = json::Value(std::move(*inner));
    }
  }
  if (json::Array* const list = value.as_array()) {
    return std::move(*list);
  }
  return fail(ErrorKind::invalid_argument, origin + " must be a list of messages or an object with \"messages\"");
}

}  // namespace deepinfer::apps

// Chat Completions: from the typed body to the conversation, with every rule of spec/recipe.md 4.1 and 4.2 in the official order.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "recipe/api_convert.h"
#include "recipe/chat_body.h"
#include "recipe/content_builder.h"
#include "recipe/data_url.h"
#include "recipe/image_source.h"
#include "recipe/request_settings.h"
#include "recipe/schema_check.h"
#include "recipe/strict_schema.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

namespace {

/// The data URL of a file part, which must hold an image.
std::expected<std::string, RequestError> file_url(ChatFilePart& file, const std::string& path) {
  if (!file.file_id && !file.file_data) {
    return reject(path + ": file must have a file_id or file_data");
  }
  if (file.file_id && file.file_data) {
    return reject(path + ": file cannot have both file_id and file_data");
  }
  if (file.file_id) {
    if (file.filename) {
      return reject(path + ": file cannot have filename when file_id is present");
    }
    return reject_file_id(path);
  }
  const std::optional<DataUrl> url = parse_data_url(*file.file_data);
  if (url && !is_image_media_type(url->media_type)) {
    return reject(path +
                  ": You have uploaded an unsupported file. Please make sure your file is valid and has one of the following formats: "
                  "webp, png, jpeg, and gif.");
  }
  if (!url || !decode_body(*url)) {
    return reject(path + ": file_data is not a valid base64 data url");
  }
  return std::move(*file.file_data);
}

/// Converts the messages of one request. Checks run message by message, inside a message parts first.
class ChatMessages {
 public:
  ChatMessages(std::vector<ChatMessage> messages, ModelVersion version, const ConvertOptions& options)
      : messages_(std::move(messages)), version_(version), options_(options) {}

  std::expected<std::vector<Message>, RequestError> convert() {
    if (messages_.empty()) {
      return reject("Empty input messages");
    }
    out_.reserve(messages_.size());
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (Verdict verdict = convert_message(i); !verdict) {
        return std::unexpected(std::move(verdict.error()));
      }
    }
    return std::move(out_);
  }

 private:
  Verdict convert_message(std::size_t index) {
    ChatMessage& message = messages_[index];
    if (message.role == ChatRole::assistant) {
      return convert_assistant(index);
    }
    std::expected<Content, RequestError> content = build_content(message, index);
    if (!content) {
      return std::unexpected(std::move(content.error()));
    }
    switch (message.role) {
      case ChatRole::system:
        if (!content->text.empty()) {
          out_.emplace_back(SystemMessage{.content = std::move(*content), .tools = std::nullopt});
        }
        return {};
      case ChatRole::user:
        out_.emplace_back(UserMessage{std::move(*content)});
        return {};
      case ChatRole::latest_reminder:
        out_.emplace_back(LatestReminderMessage{std::move(content->text)});
        return {};
      case ChatRole::tool:
        if (awaited_results_ == 0) {
          return reject("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
        }
        --awaited_results_;
        out_.emplace_back(ToolMessage{.content = std::move(*content), .tool_call_id = std::move(message.tool_call_id)});
        return {};
      case ChatRole::assistant:
        break;
    }
    std::unreachable();
  }

  Verdict convert_assistant(std::size_t index) {
    ChatMessage& message = messages_[index];
    if (!message.content && !message.tool_calls) {
      return reject("Invalid assistant message: content or tool_calls must be set");
    }
    std::expected<Content, RequestError> content = build_content(message, index);
    if (!content) {
      return std::unexpected(std::move(content.error()));
    }
    if (message.tool_calls) {
      if (Verdict verdict = check_results(index); !verdict) {
        return verdict;
      }
      awaited_results_ = message.tool_calls->size();
    }
    const bool is_last = index + 1 == messages_.size();
    if (message.prefix && !is_last) {
      return reject("Invalid completion message: prefix set true with message which is not final message or message role is not assistant");
    }
    out_.emplace_back(AssistantMessage{.content = std::move(content->text),
                                       .reasoning_content = std::move(message.reasoning_content),
                                       .tool_calls = std::move(message.tool_calls),
                                       .prefix = message.prefix});
    return {};
  }

  /// The tool messages that follow must answer the calls of this message one to one, in any order.
  Verdict check_results(std::size_t index) {
    const std::vector<ToolCall>& calls = *messages_[index].tool_calls;
    if (calls.empty()) {
      return reject("Invalid 'messages[" + std::to_string(index) +
                    "].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.");
    }
    std::unordered_set<std::string_view> awaited;
    for (const ToolCall& call : calls) {
      if (!awaited.insert(call.id).second) {
        return reject("Duplicate value for 'tool_call_id' of " + call.id + " in message[" + std::to_string(index) + "]");
      }
    }
    std::unordered_set<std::string_view> answered;
    for (std::size_t i = index + 1; i <= index + calls.size(); ++i) {
      if (i >= messages_.size() || messages_[i].role != ChatRole::tool) {
        return reject(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            "(insufficient tool messages following tool_calls message)");
      }
      const std::string& id = messages_[i].tool_call_id;
      if (!awaited.contains(id)) {
        // The official text names the answer that fits no call.
        return reject(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id', The following "
            "tool_call_ids did not have response messages: " +
            id);
      }
      if (!answered.insert(id).second) {
        return reject("Duplicate value for 'tool_call_id' of " + id + " in message[" + std::to_string(i) + "]");
      }
    }
    return {};
  }

  std::expected<Content, RequestError> build_content(ChatMessage& message, std::size_t index) {
    ContentBuilder builder(options_.special_tokens.image);
    if (!message.content) {
      return std::move(builder).take();
    }
    const std::string path = ".messages[" + std::to_string(index) + "]";
    if (version_ == ModelVersion::v4_1) {
      if (Verdict verdict = check_parts(*message.content, path); !verdict) {
        return std::unexpected(std::move(verdict.error()));
      }
    }
    for (ChatPart& part : *message.content) {
      if (auto* text = std::get_if<ChatTextPart>(&part)) {
        builder.add_text(std::move(text->text));
      } else if (version_ == ModelVersion::v4) {
        builder.add_text(std::string(kUnsupportedImage));
      } else {
        if (message.role == ChatRole::assistant) {
          return reject("Image in assistant message is not supported");
        }
        auto& image = std::get<ChatImagePart>(part);
        auto source = image_from_url(std::move(image.url), image.detail, path);
        if (!source) {
          return std::unexpected(std::move(source.error()));
        }
        builder.add_image(std::move(*source));
      }
    }
    return std::move(builder).take();
  }

  /// Link lengths; file parts become image parts.
  static Verdict check_parts(ChatContent& parts, const std::string& path) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (auto* file = std::get_if<ChatFilePart>(&parts[i])) {
        std::expected<std::string, RequestError> url = file_url(*file, path);
        if (!url) {
          return std::unexpected(std::move(url.error()));
        }
        parts[i] = ChatImagePart{.url = std::move(*url)};
      } else if (const auto* image = std::get_if<ChatImagePart>(&parts[i])) {
        if (const std::optional<std::string> problem = link_length_problem(image->url)) {
          return reject(path + ".image_url.url[" + std::to_string(i) + "]: image_url.url " + *problem);
        }
      }
    }
    return {};
  }

  std::vector<ChatMessage> messages_;
  ModelVersion version_;
  const ConvertOptions& options_;
  std::vector<Message> out_;
  std::size_t awaited_results_ = 0;  ///< tool messages that still answer the last calls
};

Verdict check_tool_names(const ChatBody& body) {
  for (std::size_t i = 0; body.tools && i < body.tools->size(); ++i) {
    if (Verdict verdict = check_tool_name((*body.tools)[i].name, "tools[" + std::to_string(i) + "].function.name"); !verdict) {
      return verdict;
    }
  }
  return {};
}

bool has_calls(const Conversation& conversation) {
  return std::ranges::any_of(conversation.messages, [](const Message& message) {
    const auto* assistant = std::get_if<AssistantMessage>(&message);
    return assistant != nullptr && assistant->tool_calls;
  });
}

/// What a prefix message and JSON mode forbid.
Verdict check_message_rules(const ChatBody& body, const Conversation& conversation) {
  const bool is_json_object = body.response_format && body.response_format->kind == ChatFormat::Kind::json_object;
  if (is_json_object && !any_content_mentions_json(conversation)) {
    return reject("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.");
  }
  const bool is_empty = conversation.messages.empty();  // of system messages without text nothing is left
  const auto* last = is_empty ? nullptr : std::get_if<AssistantMessage>(&conversation.messages.back());
  if (last != nullptr && last->prefix) {
    if (is_json_object) {
      return reject("response_format json_object should not be used with prefix");
    }
    if ((body.tools && !body.tools->empty()) || has_calls(conversation)) {
      return reject("Function call should not be used with prefix");
    }
  }
  return {};
}

/// Sets the format; returns the schema of a strict one in the form that the constraint uses.
std::expected<std::optional<json::Value>, RequestError> apply_format(Conversation& conversation, std::optional<ChatFormat>& format,
                                                                     Conformance conformance) {
  if (!format) {
    return std::nullopt;
  }
  switch (format->kind) {
    case ChatFormat::Kind::text:
      return std::nullopt;
    case ChatFormat::Kind::json_object:
      conversation.response_format = JsonObjectFormat{};
      return std::nullopt;
    case ChatFormat::Kind::regex:
      conversation.response_format = RegexFormat{std::move(format->regex)};
      return std::nullopt;
    case ChatFormat::Kind::json_schema:
      break;
  }
  return apply_schema_format(conversation, std::move(format->schema), {.is_strict = format->strict, .conformance = conformance});
}

Verdict check_penalty(std::optional<float> penalty, std::string_view name) {
  if (penalty && (*penalty < -2.0F || *penalty > 2.0F)) {
    return reject("Invalid " + std::string(name) + " value, the valid range of " + std::string(name) + " is [-2, 2]");
  }
  return {};
}

Verdict apply_logprobs(const ChatBody& body, InferenceOptions& inference) {
  constexpr std::uint32_t kMaxTopLogprobs = 20;
  inference.logprobs = body.logprobs.value_or(false);
  if (!body.top_logprobs) {
    return {};
  }
  if (!inference.logprobs) {
    return reject("Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.");
  }
  if (*body.top_logprobs > kMaxTopLogprobs) {
    return reject("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
  }
  inference.top_logprobs = *body.top_logprobs;
  return {};
}

Verdict apply_seed(const ChatBody& body, InferenceOptions& inference) {
  if (!body.seed) {
    return {};
  }
  if (*body.seed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return reject("Invalid seed value, the valid range of seed is [0, 2^63)");
  }
  inference.seed = static_cast<std::int64_t>(*body.seed);
  return {};
}

Verdict apply_sampling(const ChatBody& body, ConvertedRequest& request, const ConvertOptions& options) {
  const ThinkingMode mode = request.conversation.thinking_mode;
  if (body.n.value_or(1) != 1) {
    return reject("Invalid n value (currently only n = 1 is supported)");
  }
  Verdict verdict = check_penalty(body.presence_penalty, "presence_penalty");
  if (verdict) verdict = check_penalty(body.frequency_penalty, "frequency_penalty");
  if (verdict) verdict = assign(request.inference.temperature, resolve_temperature(body.temperature, mode));
  if (verdict) verdict = assign(request.inference.top_p, resolve_top_p(body.top_p, request.conversation, request.version));
  if (verdict) verdict = apply_logprobs(body, request.inference);
  if (verdict && body.max_tokens) {
    verdict = check_max_tokens(*body.max_tokens, max_tokens_bound(mode, options));
  }
  if (verdict) verdict = apply_seed(body, request.inference);
  request.inference.max_tokens = body.max_tokens;
  return verdict;
}

Verdict apply_tools(ChatBody& body, Conversation& conversation, Conformance conformance) {
  const RequestedToolChoice choice = body.tool_choice.value_or(RequestedToolChoice{});
  std::vector<Tool> tools;
  if (body.tools && choice.kind != RequestedToolChoice::Kind::none) {
    if (Verdict verdict = assign(tools, build_tools(std::move(*body.tools), conformance)); !verdict) {
      return verdict;
    }
  }
  return apply_tool_choice(conversation, std::move(tools), choice);
}

}  // namespace

std::expected<ConvertedRequest, RequestError> convert_chat(ChatBody body, const ConvertOptions& options) {
  ConvertedRequest request;
  Conversation& conversation = request.conversation;
  Verdict verdict = assign(request.version, find_model(body.model, options));
  if (verdict) verdict = check_tool_names(body);
  const Thinking thinking = resolve_thinking(body.thinking, body.reasoning_effort, options.default_thinking_mode);
  conversation.thinking_mode = thinking.mode;
  conversation.reasoning_effort = thinking.effort;
  if (verdict) {
    verdict = assign(conversation.messages, ChatMessages(std::move(body.messages), request.version, options).convert());
  }
  if (verdict)
    verdict = settle_reasoning(conversation, {.behaviour = options.missing_reasoning,
                                              .has_tools = body.tools && !body.tools->empty(),
                                              .field = "reasoning_content",
                                              .conformance = options.conformance});
  if (verdict) verdict = check_message_rules(body, conversation);
  if (verdict) verdict = apply_tools(body, conversation, options.conformance);
  if (verdict && body.stop) verdict = check_stop(*body.stop);
  request.stream = body.stream.value_or(false);
  if (verdict && body.include_usage && !request.stream) {
    verdict = reject("stream_options should be set along with stream = true");
  }
  std::optional<json::Value> constraint_schema;
  const bool has_format = body.response_format.has_value();
  if (verdict) verdict = assign(constraint_schema, apply_format(conversation, body.response_format, options.conformance));
  if (verdict) verdict = check_strict_mix(conversation.tools, has_format);
  if (verdict) verdict = apply_sampling(body, request, options);
  if (!verdict) {
    return std::unexpected(std::move(verdict.error()));
  }
  request.model = std::move(body.model);
  request.include_usage = !request.stream || body.include_usage.value_or(false).value_or(false);
  derive_reply_options(request, constraint_schema);
  if (body.stop) {
    request.parsing.stop_sequences = std::move(body.stop->sequences);
  }
  return request;
}

}  // namespace deepinfer::recipe

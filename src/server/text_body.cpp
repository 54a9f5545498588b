#include "server/text_body.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/json.h"
#include "recipe/convert.h"
#include "server/member_reader.h"

namespace deepinfer::server {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;  // of the OpenAI API
constexpr std::size_t kMaxStops = 16;           // as in Chat Completions
constexpr double kMaxTemperature = 2.0;
constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
constexpr std::string_view kFimEnd = "<｜fim▁end｜>";

std::unexpected<Refusal> refuse(std::string message) { return std::unexpected(refusal(recipe::Api::chat, 400, std::move(message))); }

/// Encodes prompts of one request.
class PromptReader {
 public:
  PromptReader(const ServedModel& model, std::optional<std::string_view> suffix) : model_(model), suffix_(suffix) {}

  /// A text, a list of ids, or a list of either.
  Result<std::vector<TextPrompt>> read(const json::Value* prompt) const {
    const json::Value empty = "";
    const json::Value& value = prompt == nullptr ? empty : *prompt;
    const json::Array* const items = value.as_array();
    const bool is_list = items != nullptr && !items->empty() && items->front().as_number() == nullptr;
    std::vector<TextPrompt> out;
    if (!is_list) {
      Result<TextPrompt> one = read_one(value, "'prompt'");
      if (!one) {
        return std::unexpected(std::move(one.error()));
      }
      out.push_back(std::move(*one));
      return out;
    }
    if (items->size() > kMaxTextChoices) {
      return fail(ErrorKind::invalid_argument, "'prompt' has " + std::to_string(items->size()) + " entries; at most " +
                                                   std::to_string(kMaxTextChoices) + " are allowed");
    }
    for (const json::Value& item : *items) {
      Result<TextPrompt> one = read_one(item, "'prompt[" + std::to_string(out.size()) + "]'");
      if (!one) {
        return std::unexpected(std::move(one.error()));
      }
      out.push_back(std::move(*one));
    }
    return out;
  }

 private:
  [[nodiscard]] Result<TextPrompt> read_one(const json::Value& value, const std::string& name) const {
    if (const std::string* const text = value.as_string()) {
      return suffix_ ? fill_in_the_middle(*text) : encoded(*text);
    }
    const json::Array* const items = value.as_array();
    if (items == nullptr) {
      return fail(ErrorKind::invalid_argument, name + " must be a text or a list of token ids");
    }
    if (suffix_) {
      return fail(ErrorKind::invalid_argument, "'suffix' needs a prompt that is a text");
    }
    TextPrompt out;
    for (const json::Value& item : *items) {
      const std::optional<std::int64_t> id = item.as_number() == nullptr ? std::nullopt : item.as_number()->as_int64();
      if (!id || *id < 0 || *id >= model_.tokenizer.vocab_size()) {
        return fail(ErrorKind::invalid_argument,
                    name + " holds something else than token ids from 0 to " + std::to_string(model_.tokenizer.vocab_size() - 1));
      }
      out.ids.push_back(TokenId{static_cast<std::int32_t>(*id)});
    }
    if (out.ids.empty()) {
      return fail(ErrorKind::invalid_argument, name + " holds no token id");
    }
    out.text = model_.tokenizer.decode(out.ids, tokenizer::SpecialTokens::keep);
    return out;
  }

  [[nodiscard]] TextPrompt encoded(const std::string& text) const {
    TextPrompt out{.ids = {}, .text = text};
    const std::string& bos = model_.convert.special_tokens.bos;
    if (!text.starts_with(bos) && append_control(out, bos)) {
      out.num_implied = 1;
    }
    const std::vector<TokenId> ids = model_.tokenizer.encode(text, tokenizer::AddedTokens::recognise, model_.num_encode_threads);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    return out;
  }

  [[nodiscard]] Result<TextPrompt> fill_in_the_middle(const std::string& prefix) const {
    TextPrompt out{.ids = {}, .text = prefix};
    append_control(out, model_.convert.special_tokens.bos);
    const bool has_tokens = append_control(out, kFimBegin) && append_plain(out, prefix) && append_control(out, kFimHole) &&
                            append_plain(out, *suffix_) && append_control(out, kFimEnd);
    if (!has_tokens) {
      return fail(ErrorKind::unsupported, "the model has no tokens for 'suffix'");
    }
    return out;
  }

  bool append_control(TextPrompt& out, std::string_view spelling) const {
    const std::optional<TokenId> id = model_.tokenizer.find(spelling);
    if (id) {
      out.ids.push_back(*id);
    }
    return id.has_value();
  }

  bool append_plain(TextPrompt& out, std::string_view text) const {
    const std::vector<TokenId> ids = model_.tokenizer.encode(text, tokenizer::AddedTokens::ignore, model_.num_encode_threads);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    return true;
  }

  const ServedModel& model_;
  std::optional<std::string_view> suffix_;
};

std::vector<std::string> read_stop(MemberReader& members) {
  const json::Value* const value = members.find("stop");
  if (value == nullptr) {
    return {};
  }
  std::vector<std::string> out;
  if (const std::string* const text = value->as_string()) {
    out.push_back(*text);
  } else if (const json::Array* const items = value->as_array()) {
    for (const json::Value& item : *items) {
      if (item.as_string() == nullptr) {
        members.refuse("'stop' must be a text or a list of texts");
        return {};
      }
      out.push_back(*item.as_string());
    }
  } else {
    members.refuse("'stop' must be a text or a list of texts");
  }
  if (out.size() > kMaxStops) {
    members.refuse("Stop string array too long: " + std::to_string(out.size()));
  }
  for (const std::string& stop : out) {
    if (stop.empty()) {
      members.refuse("Invalid 'stop': empty string. Expected a string with minimum length 1, but got an empty string instead.");
    }
  }
  return out;
}

void read_stream_options(MemberReader& members, TextRequest& out) {
  const json::Value* const value = members.find("stream_options");
  if (value == nullptr) {
    return;
  }
  if (!out.stream) {
    members.refuse("stream_options should be set along with stream = true");
    return;
  }
  MemberReader options(*value);
  out.include_usage = options.boolean("include_usage").value_or(false);
  if (!options.problem().empty()) {
    members.refuse(options.problem());
  }
}

/// Everything but the prompt, the extras and what depends on the context.
void read_settings(MemberReader& members, TextRequest& out) {
  out.model = members.text("model").value_or("");
  out.extras.sampling.temperature = members.number("temperature", 0.0, kMaxTemperature).value_or(1.0);
  out.extras.sampling.top_p = members.number("top_p", 0.0, 1.0).value_or(1.0);
  if (out.extras.sampling.top_p == 0.0) {
    members.refuse("Invalid top_p value, the valid range of top_p is (0, 1.0]");
  }
  out.seed = out.extras.seed ? *out.extras.seed : random_bits();
  out.stop = read_stop(members);
  out.stream = members.boolean("stream").value_or(false);
  read_stream_options(members, out);
  out.echo = members.boolean("echo").value_or(false);
  if (const auto logprobs = members.integer("logprobs", 0, kMaxTextLogprobs)) {
    out.logprobs = static_cast<std::int32_t>(*logprobs);
    out.extras.sampling.want_logprobs = true;
    out.extras.sampling.num_top_logprobs = *out.logprobs;
  }
  out.extras.sampling.want_prompt_logprobs = out.echo && out.logprobs;
  if (out.extras.sampling.want_prompt_logprobs && members.find("suffix") != nullptr) {
    members.refuse("'echo' together with 'logprobs' needs a prompt without 'suffix'");
  }
  const auto best_of = members.integer("best_of", 1, kMaxChoices);
  if (best_of && *best_of != out.extras.num_choices) {
    members.refuse("'best_of' must be equal to 'n'");
  }
}

/// Lowers max_tokens to what the longest prompt leaves only when the body does not give it.
std::expected<std::uint32_t, Refusal> max_tokens_of(MemberReader& members, const TextRequest& request, const ServedModel& model) {
  const std::optional<std::int64_t> wanted = members.integer("max_tokens", 0, std::numeric_limits<std::int32_t>::max());
  std::uint32_t out = static_cast<std::uint32_t>(wanted.value_or(kDefaultMaxTokens));
  for (const TextPrompt& prompt : request.prompts) {
    recipe::ConvertedRequest sized;
    if (wanted && *wanted > 0) {
      sized.inference.max_tokens = static_cast<std::uint32_t>(*wanted);
    }
    const auto resolved = recipe::resolve_max_tokens(sized, prompt.ids.size(), static_cast<std::uint64_t>(model.context_length));
    if (!resolved) {
      return std::unexpected(
          Refusal{.status = resolved.error().status, .body = resolved.error().body, .message = resolved.error().message});
    }
    out = std::min(out, *resolved);
  }
  return out;
}

}  // namespace

std::expected<TextRequest, Refusal> read_text_body(const ServedModel& model, std::string_view body) {
  const auto parsed = recipe::parse_body(body);
  if (!parsed) {
    return refuse(parsed.error().message);
  }
  if (parsed->as_object() == nullptr) {
    return refuse("invalid request body: expected an object");
  }
  MemberReader members(*parsed);
  TextRequest out;
  Result<RequestExtras> extras = read_extras(*parsed);
  if (!extras) {
    return refuse(std::move(extras.error().message));
  }
  out.extras = std::move(*extras);
  read_settings(members, out);
  const std::optional<std::string_view> suffix = members.text("suffix");
  if (Result<void> result = members.result(); !result) {
    return refuse(std::move(result.error().message));
  }
  if (!model.convert.model_versions.contains(out.model)) {
    return refuse("there is no model '" + out.model.substr(0, 100) + "'; GET /v1/models lists the names");
  }
  Result<std::vector<TextPrompt>> prompts = PromptReader(model, suffix).read(members.find("prompt"));
  if (!prompts) {
    return refuse(std::move(prompts.error().message));
  }
  out.prompts = std::move(*prompts);
  if (out.prompts.size() * static_cast<std::size_t>(out.extras.num_choices) > kMaxTextChoices) {
    return refuse("prompts times n is more than " + std::to_string(kMaxTextChoices));
  }
  const auto max_tokens = max_tokens_of(members, out, model);
  if (!max_tokens) {
    return std::unexpected(max_tokens.error());
  }
  if (Result<void> result = members.result(); !result) {
    return refuse(std::move(result.error().message));
  }
  out.max_tokens = *max_tokens;
  return out;
}

}  // namespace deepinfer::server

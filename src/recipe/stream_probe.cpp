#include "recipe/stream_probe.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer::recipe {

namespace {

constexpr std::array<std::pair<std::string_view, BackendFinish>, 3> kFinishes = {{
    {"stop", BackendFinish::stop},
    {"length", BackendFinish::length},
    {"content_filter", BackendFinish::content_filter},
}};

constexpr std::array<std::pair<std::string_view, ThinkingStage>, 3> kThinkingStages = {{
    {"reasoning_start", ThinkingStage::reasoning_start},
    {"reasoning_continuation", ThinkingStage::reasoning_continuation},
    {"content_continuation", ThinkingStage::content_continuation},
}};

template <class Table>
auto look_up(const Table& table, const json::Value& name) -> std::optional<typename Table::value_type::second_type> {
  for (const auto& [text, value] : table) {
    if (name.as_string() != nullptr && *name.as_string() == text) {
      return value;
    }
  }
  return std::nullopt;
}

bool flag(const json::Value& line, std::string_view key, bool otherwise) {
  const json::Value* value = line.find(key);
  return value != nullptr && value->as_bool() != nullptr ? *value->as_bool() : otherwise;
}

std::uint64_t count(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->as_number() != nullptr ? value->as_number()->as_uint64().value_or(0) : 0;
}

std::optional<std::string> text_member(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->as_string() != nullptr ? std::optional(*value->as_string()) : std::nullopt;
}

void apply_parsing_options(ParsingOptions& options, const json::Value& changes) {
  options.parse_tool_calls = flag(changes, "parse_tool_calls", options.parse_tool_calls);
  options.starts_in_tool_calls = flag(changes, "starts_in_tool_calls", options.starts_in_tool_calls);
  options.parse_json_output = flag(changes, "parse_json_output", options.parse_json_output);
  if (const json::Value* stage = changes.find("thinking_initial_stage")) {
    options.thinking_initial_stage = look_up(kThinkingStages, *stage).value_or(ThinkingStage::none);
  }
  const json::Value* stops = changes.find("stop_sequences");
  if (stops != nullptr && stops->as_array() != nullptr) {
    options.stop_sequences.clear();
    for (const json::Value& stop : *stops->as_array()) {
      options.stop_sequences.push_back(stop.as_string() != nullptr ? *stop.as_string() : std::string());
    }
  }
}

void apply_line(ReplyStreamOptions& options, const json::Value& line) {
  options.id = text_member(line, "id").value_or("resp-1");
  options.model = text_member(line, "model").value_or(options.model);
  options.signature = text_member(line, "signature");
  if (const json::Value* changes = line.find("parsing_options")) {
    apply_parsing_options(options.parsing, *changes);
  }
  options.random_bits = [engine = std::mt19937_64(std::random_device()())]() mutable { return engine(); };
  options.unix_time = [] { return std::int64_t{0}; };
}

Result<TokenId> token_id(const json::Value& value) {
  const auto number = value.as_number() != nullptr ? value.as_number()->as_int64() : std::nullopt;
  if (!number || *number < 0 || *number > INT32_MAX) {
    return fail(ErrorKind::invalid_argument, "a token id is an integer from 0 to 2147483647");
  }
  return TokenId{static_cast<std::int32_t>(*number)};
}

/// `[logprob, [[id, logprob], ...]]`
Result<TokenLogprob> token_logprob(const json::Value& value) {
  const auto bad = [] { return fail(ErrorKind::invalid_argument, "logprobs are [logprob, [[id, logprob], ...]]"); };
  const json::Array* pair = value.as_array();
  if (pair == nullptr || pair->size() != 2 || (*pair)[0].as_number() == nullptr || (*pair)[1].as_array() == nullptr) {
    return bad();
  }
  TokenLogprob out{.logprob = static_cast<float>((*pair)[0].as_number()->as_double()), .top = {}};
  for (const json::Value& entry : *(*pair)[1].as_array()) {
    const json::Array* top = entry.as_array();
    if (top == nullptr || top->size() != 2 || (*top)[1].as_number() == nullptr) {
      return bad();
    }
    const Result<TokenId> id = token_id((*top)[0]);
    if (!id) {
      return std::unexpected(id.error());
    }
    out.top.emplace_back(*id, static_cast<float>((*top)[1].as_number()->as_double()));
  }
  return out;
}

template <class T>
Result<std::vector<T>> read_list(const json::Value& list, Result<T> (*read)(const json::Value&)) {
  std::vector<T> out;
  if (list.as_array() == nullptr) {
    return fail(ErrorKind::invalid_argument, "token_ids and logprobs are arrays");
  }
  for (const json::Value& value : *list.as_array()) {
    Result<T> one = read(value);
    if (!one) {
      return std::unexpected(one.error());
    }
    out.push_back(std::move(*one));
  }
  return out;
}

/// The steps of one probe line.
class StreamRun {
 public:
  explicit StreamRun(ReplyStreamOptions options) : is_chat_(options.api == Api::chat), stream_(std::move(options)) {}

  /// False in the value: the stream ended with an error, which is not a protocol error.
  Result<bool> push(const json::Value& chunk) {
    if (const json::Value* ready = chunk.find("ready")) {
      take(stream_.ready({.prompt_tokens = count(*ready, "prompt_tokens"),
                          .cached_tokens = count(*ready, "prompt_cache_hit_tokens"),
                          .system_fingerprint = text_member(*ready, "system_fingerprint")}));
      return true;
    }
    if (const std::optional<std::string> text = text_member(chunk, "text")) {
      take(stream_.text(*text, count(chunk, "token_count")));
      return true;
    }
    if (const json::Value* ids = chunk.find("token_ids")) {
      return push_ids(*ids, chunk.find("logprobs"));
    }
    const json::Value* finish = chunk.find("finish");
    const auto reason = finish != nullptr ? look_up(kFinishes, *finish) : std::nullopt;
    if (!reason) {
      return fail(ErrorKind::invalid_argument, "a chunk has ready, text, token_ids or a known finish");
    }
    take(stream_.finish(*reason));
    return true;
  }

  void end_input() { take(stream_.finish(BackendFinish::end_of_input)); }
  [[nodiscard]] bool finished() const { return stream_.finished(); }

  Result<json::Value> result() && {
    Result<json::Value> response = json::parse(stream_.response(), {.max_depth = 512});
    if (!response) {
      return std::unexpected(response.error());
    }
    return json::Object{{"steps", std::move(steps_)},
                        {"error", std::move(error_)},
                        {"finished", stream_.finished()},
                        {"done", is_chat_ ? json::Value("[DONE]") : json::Value()},
                        {"response", std::move(*response)}};
  }

 private:
  Result<bool> push_ids(const json::Value& ids_json, const json::Value* logprobs_json) {
    const auto ids = read_list<TokenId>(ids_json, token_id);
    if (!ids) {
      return std::unexpected(ids.error());
    }
    std::optional<std::vector<TokenLogprob>> logprobs;
    if (logprobs_json != nullptr && !logprobs_json->is_null()) {
      auto read = read_list<TokenLogprob>(*logprobs_json, token_logprob);
      if (!read) {
        return std::unexpected(read.error());
      }
      logprobs = std::move(*read);
    }
    const auto events = stream_.tokens(*ids, logprobs ? &*logprobs : nullptr);
    if (!events) {
      error_ = events.error().message;
      return false;
    }
    take(*events);
    return true;
  }

  void take(std::span<const Event> events) {
    json::Array step;
    for (const Event& event : events) {
      json::Value data = json::parse(event.data, {.max_depth = 512}).value_or(json::Value(event.data));
      step.push_back(is_chat_ ? std::move(data) : json::Object{{"event", event.name}, {"data", std::move(data)}});
    }
    steps_.push_back(std::move(step));
  }

  bool is_chat_;
  ReplyStream stream_;
  json::Array steps_;
  json::Value error_;
};

}  // namespace

Result<json::Value> run_stream_probe(ReplyStreamOptions options, const json::Value& line) {
  const json::Value* chunks = line.find("chunks");
  if (chunks == nullptr || chunks->as_array() == nullptr) {
    return fail(ErrorKind::invalid_argument, "chunks is an array");
  }
  apply_line(options, line);
  const bool has_ids =
      std::ranges::any_of(*chunks->as_array(), [](const json::Value& chunk) { return chunk.find("token_ids") != nullptr; });
  if (!has_ids || flag(line, "no_tokenizer", false)) {
    options.tokenizer = nullptr;  // as the oracle does, so that reasoning tokens are counted in the same cases
  }
  StreamRun run(std::move(options));
  bool alive = true;
  for (const json::Value& chunk : *chunks->as_array()) {
    if (run.finished() || !alive) {
      break;
    }
    const Result<bool> pushed = run.push(chunk);
    if (!pushed) {
      return std::unexpected(pushed.error());
    }
    alive = *pushed;
  }
  if (alive && !run.finished() && !flag(line, "no_finish", false)) {
    run.end_input();
  }
  return std::move(run).result();
}

}  // namespace deepinfer::recipe

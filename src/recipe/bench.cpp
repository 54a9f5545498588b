#include "recipe/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "recipe/convert.h"
#include "recipe/render.h"
#include "recipe/reply_stream.h"

namespace deepinfer::recipe {

namespace {

/// Seconds of the fastest of several calls of `work`, which returns a number that depends on all it did.
template <class Work>
double best_seconds(Work work) {
  constexpr int kMinRounds = 5;
  constexpr auto kEnough = std::chrono::milliseconds(700);
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  Duration best = Duration::max();
  std::uint64_t sum = 0;
  for (int round = 0; round < kMinRounds || clock.now() - begin < kEnough; ++round) {
    const TimePoint start = clock.now();
    sum += work();
    best = std::min(best, clock.now() - start);
  }
  check(sum > 0, "timed work has a result");
  return std::chrono::duration<double>(best).count();
}

constexpr double kMicroseconds = 1e6;

/// One job with its members as values.
struct Job {
  const json::Value& json;

  [[nodiscard]] std::string_view text(std::string_view key) const {
    const json::Value* value = json.find(key);
    return value != nullptr && value->as_string() != nullptr ? std::string_view(*value->as_string()) : std::string_view();
  }
  [[nodiscard]] const json::Array& array(std::string_view key) const {
    static const json::Array kNone;
    const json::Value* value = json.find(key);
    return value != nullptr && value->as_array() != nullptr ? *value->as_array() : kNone;
  }
};

Result<Api> api_of(const Job& job) {
  const std::string_view name = job.text("api");
  if (name == "chat") {
    return Api::chat;
  }
  if (name == "messages") {
    return Api::messages;
  }
  if (name == "responses") {
    return Api::responses;
  }
  return fail(ErrorKind::invalid_argument, "`api` is chat, messages or responses");
}

/// The API of a job whose request converts.
Result<Api> checked_api(const Job& job) {
  const Result<Api> api = api_of(job);
  if (!api) {
    return api;
  }
  const auto request = convert(*api, job.text("body"), ConvertOptions());
  return request ? api : fail(ErrorKind::invalid_argument, "`body`: " + request.error().message);
}

/// Conversion, a ready chunk, the chunks that `feed` gives to the stream, and the end; the number of bytes of all events.
template <class Feed>
std::uint64_t run_stream(Api api, const Job& job, const tokenizer::Tokenizer* tokenizer, const Feed& feed) {
  const auto request = convert(api, job.text("body"), ConvertOptions());
  ReplyStreamOptions options = reply_stream_options(api, *request);
  options.id = "id";
  options.tokenizer = tokenizer;
  options.random_bits = [engine = std::mt19937_64()]() mutable { return engine(); };
  options.unix_time = [] { return std::int64_t{0}; };
  ReplyStream stream(std::move(options));
  std::uint64_t num_bytes = 0;
  const auto take = [&num_bytes](std::span<const Event> events) {
    for (const Event& event : events) {
      num_bytes += event.data.size();
    }
  };
  take(stream.ready({.prompt_tokens = 100, .cached_tokens = 0, .system_fingerprint = std::nullopt}));
  feed(stream, take);
  take(stream.finish(BackendFinish::stop));
  return num_bytes;
}

Result<double> time_convert_render(const Job& job) {
  const Result<Api> api = checked_api(job);
  if (!api) {
    return std::unexpected(api.error());
  }
  return kMicroseconds * best_seconds([&] {
           const auto request = convert(*api, job.text("body"), ConvertOptions());
           return static_cast<std::uint64_t>(render(request->conversation, request->version, SpecialTokens()).text.size());
         });
}

double measure_encode(const Job& job, const tokenizer::Tokenizer& tokenizer) {
  const std::string_view text = job.text("text");
  const double seconds =
      best_seconds([&] { return static_cast<std::uint64_t>(tokenizer.encode(text, tokenizer::AddedTokens::recognise).size()); });
  constexpr double kMegabyte = 1e6;
  return static_cast<double>(text.size()) / kMegabyte / seconds;
}

Result<double> time_stream(const Job& job) {
  const Result<Api> api = checked_api(job);
  if (!api) {
    return std::unexpected(api.error());
  }
  std::vector<std::string_view> pieces;
  for (const json::Value& piece : job.array("pieces")) {
    pieces.push_back(piece.as_string() != nullptr ? std::string_view(*piece.as_string()) : std::string_view());
  }
  return kMicroseconds * best_seconds([&] {
           return run_stream(*api, job, nullptr, [&](ReplyStream& stream, const auto& take) {
             for (const std::string_view piece : pieces) {
               take(stream.text(piece, 1));
             }
           });
         });
}

Result<double> time_stream_token(const Job& job, const tokenizer::Tokenizer& tokenizer) {
  const Result<Api> api = checked_api(job);
  if (!api) {
    return std::unexpected(api.error());
  }
  std::vector<TokenId> ids;
  for (const json::Value& id : job.array("token_ids")) {
    const auto number = id.as_number() != nullptr ? id.as_number()->as_int64() : std::nullopt;
    ids.push_back(TokenId{static_cast<std::int32_t>(number.value_or(0))});
  }
  return kMicroseconds * best_seconds([&] {
           return run_stream(*api, job, &tokenizer, [&](ReplyStream& stream, const auto& take) {
             for (const TokenId& id : ids) {
               take(*stream.tokens({&id, 1}));
             }
           });
         });
}

}  // namespace

Result<json::Value> run_bench(const tokenizer::Tokenizer& tokenizer, std::string_view jobs_json) {
  const Result<json::Value> file = json::parse(jobs_json);
  if (!file) {
    return fail(file.error(), "job file");
  }
  const json::Value* jobs = file->find("jobs");
  if (jobs == nullptr || jobs->as_array() == nullptr) {
    return fail(ErrorKind::invalid_argument, "job file: `jobs` is an array");
  }
  json::Object figures;
  for (const json::Value& entry : *jobs->as_array()) {
    const Job job{entry};
    const std::string_view name = job.text("job");
    Result<double> figure = fail(ErrorKind::invalid_argument, "unknown job `" + std::string(name) + "`");
    std::string unit = "_us";
    if (name == "convert_render") {
      figure = time_convert_render(job);
    } else if (name == "encode") {
      figure = measure_encode(job, tokenizer);
      unit = "_mb_s";
    } else if (name == "stream") {
      figure = time_stream(job);
    } else if (name == "stream_token") {
      figure = time_stream_token(job, tokenizer);
    }
    if (!figure) {
      return fail(figure.error(), "job file");
    }
    figures.set(std::string(name) + unit, *figure);
  }
  return figures;
}

}  // namespace deepinfer::recipe

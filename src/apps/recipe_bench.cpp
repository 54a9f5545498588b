#include "apps/recipe_bench.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/convert.h"
#include "recipe/render.h"
#include "recipe/reply_stream.h"

namespace deepinfer::apps {
namespace {

using Seconds = std::chrono::duration<double>;

/// Rounds that are timed, and the least time of one round: short work is repeated inside it, so that the clock does not count. No longer
/// than that, so that on a busy machine some rounds are not interrupted.
constexpr int kRounds = 7;
constexpr Seconds kLeastRound{0.01};

struct Job {
  std::string name;
  recipe::Api api = recipe::Api::chat;
  std::string body;
  std::string text;
  std::vector<std::string> pieces;
  std::vector<TokenId> ids;
};

/// Seconds of one call of `work`, the best of all rounds.
double best_time(const std::function<void()>& work) {
  const auto timed = [&work](int repetitions) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) {
      work();
    }
    return Seconds(std::chrono::steady_clock::now() - begin);
  };
  int repetitions = 1;
  while (timed(repetitions) < kLeastRound && repetitions < (1 << 20)) {
    repetitions *= 2;
  }
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    best = std::min(best, timed(repetitions).count() / repetitions);
  }
  return best;
}

Result<std::string> member_text(const json::Value& job, std::string_view name) {
  const json::Value* const value = job.find(name);
  const std::string* const text = value == nullptr ? nullptr : value->as_string();
  if (text == nullptr) {
    return fail(ErrorKind::invalid_argument, "a bench job needs the string '" + std::string(name) + "'");
  }
  return *text;
}

const json::Array& member_list(const json::Value& job, std::string_view name) {
  static const json::Array kEmpty;
  const json::Value* const value = job.find(name);
  const json::Array* const list = value == nullptr ? nullptr : value->as_array();
  return list == nullptr ? kEmpty : *list;
}

Result<Job> parse_job(const json::Value& value) {
  Result<std::string> name = member_text(value, "job");
  if (!name) {
    return std::unexpected(std::move(name.error()));
  }
  Job job{.name = *name, .body = {}, .text = {}, .pieces = {}, .ids = {}};
  Result<std::string> main_text = member_text(value, job.name == "encode" ? "text" : "body");
  if (!main_text) {
    return std::unexpected(std::move(main_text.error()));
  }
  (job.name == "encode" ? job.text : job.body) = std::move(*main_text);
  if (const json::Value* const api = value.find("api"); api != nullptr && api->as_string() != nullptr) {
    job.api = *api->as_string() == "messages"    ? recipe::Api::messages
              : *api->as_string() == "responses" ? recipe::Api::responses
                                                 : recipe::Api::chat;
  }
  for (const json::Value& piece : member_list(value, "pieces")) {
    job.pieces.push_back(piece.as_string() == nullptr ? std::string() : *piece.as_string());
  }
  for (const json::Value& id : member_list(value, "token_ids")) {
    const std::optional<std::int64_t> number = id.as_number() == nullptr ? std::nullopt : id.as_number()->as_int64();
    job.ids.push_back(TokenId{static_cast<std::int32_t>(number.value_or(0))});
  }
  return job;
}

/// Conversion, one ready chunk, every piece or id, finish. Returns the bytes of all events, so that nothing is optimised away.
std::size_t stream(const Job& job, const recipe::ConvertOptions& options, const tokenizer::Tokenizer* tokenizer) {
  const auto converted = recipe::convert(job.api, job.body, options);
  if (!converted) {
    return 0;
  }
  recipe::ReplyStreamOptions stream_options = recipe::reply_stream_options(job.api, *converted);
  stream_options.id = "resp-1";
  stream_options.tokenizer = tokenizer;
  stream_options.random_bits = [] { return std::uint64_t{1}; };
  stream_options.unix_time = [] { return std::int64_t{0}; };
  recipe::ReplyStream reply(std::move(stream_options));
  std::size_t size = 0;
  const auto count = [&size](std::span<const recipe::Event> events) {
    for (const recipe::Event& event : events) {
      size += event.data.size();
    }
  };
  count(reply.ready({}));
  for (const std::string& piece : job.pieces) {
    count(reply.text(piece, 1));
  }
  for (const TokenId& id : job.ids) {
    count(reply.tokens(std::span(&id, 1)).value_or(std::span<const recipe::Event>()));
  }
  count(reply.finish(recipe::BackendFinish::stop));
  return size;
}

}  // namespace

Result<std::string> run_recipe_jobs(const json::Value& jobs, const tokenizer::Tokenizer* tokenizer) {
  constexpr double kMicroseconds = 1e6;
  const recipe::ConvertOptions options;
  json::Object figures;
  std::size_t sink = 0;
  for (const json::Value& value : member_list(jobs, "jobs")) {
    const Result<Job> job = parse_job(value);
    if (!job) {
      return std::unexpected(job.error());
    }
    if (job->name != "convert_render" && job->name != "stream" && tokenizer == nullptr) {
      return fail(ErrorKind::invalid_argument, "the bench job '" + job->name + "' needs --tokenizer");
    }
    if (job->name == "convert_render") {
      figures.set("convert_render_us", kMicroseconds * best_time([&] {
                                         const auto converted = recipe::convert(job->api, job->body, options);
                                         sink += converted ? recipe::render(converted->conversation, converted->version).text.size() : 0;
                                       }));
    } else if (job->name == "encode") {
      const double seconds = best_time([&] { sink += tokenizer->encode(job->text, tokenizer::AddedTokens::recognise).size(); });
      figures.set("encode_mb_s", static_cast<double>(job->text.size()) / kMicroseconds / seconds);
    } else if (job->name == "stream" || job->name == "stream_token") {
      figures.set(job->name + "_us", kMicroseconds * best_time([&] { sink += stream(*job, options, tokenizer); }));
    } else {
      return fail(ErrorKind::invalid_argument, "there is no bench job '" + job->name + "'");
    }
  }
  if (sink == 0) {
    return fail(ErrorKind::invalid_argument, "the bench jobs produced nothing: there are none, or their bodies are refused");
  }
  return json::to_text(std::move(figures));
}

}  // namespace deepinfer::apps

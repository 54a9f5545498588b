// deepinfer batch: JSONL of API bodies in, JSONL of API responses out, in the order of the input, so that an interrupted batch goes on
// where its output ends.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/files.h"
#include "apps/loading.h"
#include "apps/local_completion.h"
#include "apps/log_sink.h"
#include "apps/model_flags.h"
#include "apps/progress.h"
#include "server/reply.h"
#include "server/text_completion.h"

namespace deepinfer::apps {
namespace {

/// Results that wait for a slow request before them, as a multiple of the requests at once.
constexpr std::size_t kMaxWaitingFactor = 16;

struct Flags {
  ModelFlags model;
  std::filesystem::path input;
  std::filesystem::path output;
  bool starts_over = false;
  ServedSettings served;
};

enum class BatchApi { chat, messages, responses, completions, unknown };

/// One line of the input: a body, or {"custom_id", "url", "body"} as in the official batch files.
struct BatchLine {
  BatchApi api = BatchApi::chat;
  std::string body;
  std::optional<std::string> custom_id;
};

BatchApi api_of_url(std::string_view url) {
  constexpr std::array kUrls = {std::pair("/v1/chat/completions", BatchApi::chat), std::pair("/v1/messages", BatchApi::messages),
                                std::pair("/v1/responses", BatchApi::responses), std::pair("/v1/completions", BatchApi::completions)};
  const auto found = std::ranges::find(kUrls, url, [](const auto& entry) { return std::string_view(entry.first); });
  return found == kUrls.end() ? BatchApi::unknown : found->second;
}

recipe::Api recipe_api(BatchApi api) {
  return api == BatchApi::messages ? recipe::Api::messages : api == BatchApi::responses ? recipe::Api::responses : recipe::Api::chat;
}

/// A line that is no JSON is taken as it is: the API then says what is wrong with it. `stream` is dropped: a line gets one response.
BatchLine parse_line(const std::string& line) {
  BatchLine out{.body = line, .custom_id = {}};
  Result<json::Value> parsed = json::parse(line);
  json::Object* body = parsed ? parsed->as_object() : nullptr;
  if (body == nullptr) {
    return out;
  }
  const json::Value* const id = body->find("custom_id");
  json::Value* const inner = body->find("body");
  if (id != nullptr && id->as_string() != nullptr && inner != nullptr && inner->as_object() != nullptr) {
    out.custom_id = *id->as_string();
    const json::Value* const url = body->find("url");
    out.api = url == nullptr || url->as_string() == nullptr ? out.api : api_of_url(*url->as_string());
    body = inner->as_object();
  }
  body->erase("stream");
  body->erase("stream_options");
  out.body = json::to_text(*body);
  return out;
}

std::string output_line(const BatchLine& line, int status, const std::string& body) {
  if (!line.custom_id) {
    return body;
  }
  std::string out = "{\"custom_id\":";
  json::append_string(out, *line.custom_id);
  return out + ",\"response\":{\"status_code\":" + std::to_string(status) + ",\"body\":" + body + "},\"error\":null}";
}

using Work = std::variant<std::unique_ptr<server::Reply>, std::unique_ptr<server::TextCompletion>>;

/// A line being worked on. Its result is kept until all lines before it are written.
struct Job {
  BatchLine line;
  std::optional<Work> work;
  std::optional<std::string> result;
};

class Batch {
 public:
  Batch(std::shared_ptr<const server::ServedModel> model, std::size_t num_at_once, std::FILE* output)
      : model_(std::move(model)), num_at_once_(num_at_once), output_(output) {}

  /// Works on `lines` from `first` on. False when the output cannot be written.
  bool work(const std::vector<std::string>& lines, std::size_t first, Progress& progress) {
    std::size_t next = first;
    std::size_t written = first;
    while (written < lines.size()) {
      while (next < lines.size() && num_running_ < num_at_once_ && jobs_.size() < kMaxWaitingFactor * num_at_once_) {
        jobs_.push_back({.line = parse_line(lines[next++]), .work = {}, .result = {}});
        begin(jobs_.back());
      }
      for (Job& job : jobs_) {
        advance(job);
      }
      const std::size_t before = written;
      for (; !jobs_.empty() && jobs_.front().result; ++written) {
        if (!write(*jobs_.front().result)) {
          return false;
        }
        jobs_.pop_front();
      }
      if (written == before) {
        wake_up_.wait(std::chrono::milliseconds(100));
      } else {
        progress.show(written, lines.size(), std::to_string(num_tokens_) + " tokens");
      }
    }
    return true;
  }

  [[nodiscard]] std::size_t num_failed() const { return num_failed_; }
  [[nodiscard]] std::uint64_t num_tokens() const { return num_tokens_; }

 private:
  void begin(Job& job) {
    if (job.line.api == BatchApi::unknown) {
      fail_job(job, server::refusal(recipe::Api::chat, 400, "the url must be one of the server's that generate"));
    } else if (job.line.api == BatchApi::completions) {
      begin_as<server::TextCompletion>(job);
    } else {
      begin_as<server::Reply>(job);
    }
  }

  template <class Reply>
  void begin_as(Job& job) {
    auto started = Reply::start(model_, {.api = recipe_api(job.line.api), .body = job.line.body}, [this] { wake_up_.notify(); });
    if (started) {
      job.work = std::move(*started);
      ++num_running_;
    } else {
      fail_job(job, started.error());
    }
  }

  void advance(Job& job) {
    if (!job.work) {
      return;
    }
    const bool has_ended = std::visit([this, &job](auto& work) { return advance(job, *work); }, *job.work);
    if (has_ended) {
      job.work.reset();
      --num_running_;
    }
  }

  template <class Reply>
  bool advance(Job& job, Reply& reply) {
    const auto state = reply.advance([](const recipe::Event&) {});
    if (state == server::Completion::State::running || state == server::Completion::State::preparing) {
      return false;
    }
    num_tokens_ += reply.statistics().completion_tokens;
    if (state == server::Completion::State::finished) {
      job.result = output_line(job.line, 200, reply.response());
    } else {
      fail_job(job, reply.failure());
    }
    return true;
  }

  void fail_job(Job& job, const server::Refusal& refusal) {
    ++num_failed_;
    job.result = output_line(job.line, refusal.status, refusal.body);
  }

  bool write(const std::string& line) {
    return std::fwrite(line.data(), 1, line.size(), output_) == line.size() && std::fputc('\n', output_) != EOF &&
           std::fflush(output_) == 0;
  }

  WakeUp wake_up_;  ///< outlives the completions that use it
  std::shared_ptr<const server::ServedModel> model_;
  std::size_t num_at_once_;
  std::FILE* output_;
  std::deque<Job> jobs_;
  std::size_t num_running_ = 0;
  std::size_t num_failed_ = 0;
  std::uint64_t num_tokens_ = 0;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (text.find_first_not_of(" \t\r", begin) < end) {
      out.push_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return out;
}

/// Lines of an earlier run that are complete; half a line at the end is cut off.
Result<std::size_t> resume(const std::filesystem::path& output) {
  std::error_code error;
  if (!std::filesystem::exists(output, error)) {
    return std::size_t{0};
  }
  const Result<std::string> text = read_file(output);
  if (!text) {
    return std::unexpected(text.error());
  }
  const std::size_t complete = text->find_last_of('\n') + 1;
  std::filesystem::resize_file(output, complete, error);
  if (error) {
    return fail(ErrorKind::io, "cannot shorten " + output.string() + ": " + error.message());
  }
  return static_cast<std::size_t>(std::count(text->begin(), text->begin() + static_cast<std::ptrdiff_t>(complete), '\n'));
}

int batch(const Flags& flags) {
  const Result<std::string> text = read_file(flags.input);
  if (!text) {
    return report(text.error());
  }
  const std::vector<std::string> lines = lines_of(*text);
  const bool uses_stdout = flags.output == "-";
  Result<std::size_t> first = uses_stdout || flags.starts_over ? Result<std::size_t>(0) : resume(flags.output);
  if (!first) {
    return report(first.error());
  }
  if (*first > lines.size()) {
    print_error(flags.output.string() +
                " has more lines than the input: it belongs to another batch; choose another file or add --start-over");
    return kWrongArguments;
  }
  const auto model = load_served_model(flags.model, flags.served, make_log(flags.model.log_level));
  if (!model) {
    return report(model.error());
  }
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  const File file(uses_stdout ? nullptr : std::fopen(flags.output.c_str(), flags.starts_over ? "w" : "a"),
                  [](std::FILE* f) { return std::fclose(f); });
  if (!uses_stdout && !file) {
    print_error("cannot write " + flags.output.string());
    return kFailed;
  }
  if (*first > 0) {
    print_error(std::to_string(*first) + " of " + std::to_string(lines.size()) + " requests were done before");
  }
  Batch work(*model, static_cast<std::size_t>(flags.model.max_requests), uses_stdout ? stdout : file.get());
  bool is_written = false;
  {
    Progress progress("batch");
    is_written = work.work(lines, *first, progress);
  }
  if (!is_written) {
    print_error("cannot write to " + (uses_stdout ? std::string("stdout") : flags.output.string()) + "; the batch can be resumed");
    return kFailed;
  }
  print_error(std::to_string(lines.size() - *first) + " requests, " + std::to_string(work.num_failed()) + " refused or failed, " +
              std::to_string(work.num_tokens()) + " tokens");
  return work.num_failed() == 0 ? kDone : kFailed;
}

}  // namespace

void add_batch(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand("batch", "answers a file of requests");
  command->footer(
      "Example:\n  deepinfer batch --input requests.jsonl --output replies.jsonl --max-requests 32\n\n"
      "Each input line is an API body, or {\"custom_id\", \"url\", \"body\"}. Output lines have the order of the input. When the output\n"
      "exists already, the batch goes on where it ends.");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--input", flags->input, "JSONL of requests; - for stdin")->required();
  command->add_option("--output", flags->output, "JSONL of responses; - for stdout")->required();
  command->add_flag("--start-over", flags->starts_over, "overwrite the output instead of going on");
  command->add_flag("--strict-official", flags->served.strict_official, "only what the official package does, as of serve");
  add_model_flags(*command, flags->model);
  command->callback([flags, &action] { action = [flags] { return batch(*flags); }; });
}

}  // namespace deepinfer::apps

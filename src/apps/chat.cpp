// deepinfer chat: a conversation in the terminal, with history. Ctrl-C ends an answer, not the program.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/chat_request.h"
#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/files.h"
#include "apps/interrupts.h"
#include "apps/lines.h"
#include "apps/loading.h"
#include "apps/local_completion.h"
#include "apps/log_sink.h"
#include "apps/model_flags.h"
#include "apps/reply_printer.h"

namespace deepinfer::apps {
namespace {

constexpr const char* kHelp =
    "/system TEXT   set the system message and start anew (without TEXT: none)\n"
    "/tools FILE    offer the tools of a JSON file (without FILE: none); you then type the result of each call\n"
    "/image FILE    show an image with your next message (may be repeated)\n"
    "/stats         figures of the last answer\n"
    "/clear         start anew\n"
    "/quit          leave (also Ctrl-D)\n"
    "Ctrl-C ends the answer that is being written.\n";

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

class Chat {
 public:
  Chat(ChatFlags flags, std::shared_ptr<const server::ServedModel> model, const Interrupts& interrupts)
      : flags_(std::move(flags)), model_(std::move(model)), interrupts_(interrupts) {
    start_anew();
  }

  int converse() {
    say("Talking to " + model_->name + ". /help lists what else can be typed.\n");
    while (const std::optional<std::string> line = read_line("> ")) {
      if (line->starts_with('/')) {
        if (!obey(*line)) {
          return kDone;
        }
      } else if (!line->empty()) {
        ask_with_images(*line);
      }
    }
    say("\n");
    return kDone;
  }

 private:
  /// nullopt at the end of the input, and when Ctrl-C comes while nothing is being answered.
  std::optional<std::string> read_line(std::string_view prompt) {
    if (::isatty(STDIN_FILENO) != 0) {
      say(prompt);
    }
    std::optional<std::string> line = reader_.next(interrupts_.descriptor());
    if (line) {
      line->resize(line->find_last_not_of(" \t\r") + 1);
    }
    return line;
  }

  void start_anew() {
    messages_.clear();
    images_.clear();
    if (!flags_.system.empty()) {
      messages_.push_back(chat_message("system", flags_.system));
    }
  }

  /// False for /quit.
  bool obey(const std::string& line) {
    const std::size_t blank = line.find(' ');
    const std::string command = line.substr(0, blank);
    const std::string argument = blank == std::string::npos ? std::string() : line.substr(line.find_first_not_of(' ', blank));
    if (command == "/quit" || command == "/exit") {
      return false;
    }
    if (command == "/help") {
      say(kHelp);
    } else if (command == "/clear") {
      start_anew();
    } else if (command == "/stats") {
      say((last_ ? statistics_line(*last_) : std::string("There was no answer yet.")) + "\n");
    } else if (command == "/system") {
      flags_.system = argument;
      start_anew();
    } else if (command == "/image") {
      images_.emplace_back(argument);
    } else if (command == "/tools") {
      use_tools(argument);
    } else {
      say("There is no " + command + ".\n" + kHelp);
    }
    return true;
  }

  void ask_with_images(const std::string& text) {
    Result<json::Value> message = user_message(text, images_);
    images_.clear();
    if (message) {
      ask(std::move(*message));
    } else {
      say(message.error().message + "\n");
    }
  }

  void use_tools(const std::string& file) {
    ChatFlags changed = flags_;
    changed.tools_file = file;
    const Result<json::Object> settings = chat_settings(changed, model_->name, ReplyForm::stream);
    if (!settings) {
      say(settings.error().message + "\n");
      return;
    }
    flags_ = std::move(changed);
  }

  /// Sends the history with `message`, and the results of calls as long as the model makes calls.
  void ask(json::Value message) {
    json::Array added{std::move(message)};
    for (;;) {
      ReplyPrinter printer;
      if (!answer(added, printer)) {
        return;
      }
      messages_.insert(messages_.end(), added.begin(), added.end());
      messages_.push_back(printer.message());
      added.clear();
      for (const ReplyPrinter::Call& call : printer.calls()) {
        const std::optional<std::string> result = read_line("result of " + call.name + "> ");
        added.push_back(json::Object{{"role", "tool"}, {"tool_call_id", call.id}, {"content", result.value_or("no result")}});
      }
      if (added.empty()) {
        return;
      }
    }
  }

  /// False when the request was refused, failed or interrupted with nothing said: the history then stays as it was.
  bool answer(const json::Array& added, ReplyPrinter& printer) {
    const Result<json::Object> settings = chat_settings(flags_, model_->name, ReplyForm::stream);
    if (!settings) {
      say(settings.error().message + "\n");
      return false;
    }
    json::Array messages = messages_;
    messages.insert(messages.end(), added.begin(), added.end());
    const auto reply = complete(
        model_, chat_body(*settings, std::move(messages)), [&printer](const recipe::Event& event) { printer.print(event); },
        [this] { return interrupts_.wait(std::chrono::milliseconds(0)) != 0; });
    printer.finish();
    if (!reply) {
      say(reply.error().message + "\n");
      return false;
    }
    last_ = reply->statistics;
    if (reply->is_cancelled) {
      say("(interrupted)\n");
    }
    return !reply->is_cancelled || (!printer.content().empty() && !printer.has_calls());
  }

  ChatFlags flags_;
  std::shared_ptr<const server::ServedModel> model_;
  const Interrupts& interrupts_;
  LineReader reader_{STDIN_FILENO};
  json::Array messages_;
  std::vector<std::filesystem::path> images_;  ///< of the next message
  std::optional<server::CompletionStatistics> last_;
};

struct Flags {
  ModelFlags model;
  ChatFlags chat;
};

int chat(const Flags& flags) {
  const Interrupts interrupts({SIGINT});
  const auto model = load_served_model(flags.model, {.strict_official = flags.chat.strict_official}, make_log(flags.model.log_level));
  if (!model) {
    return report(model.error());
  }
  return Chat(flags.chat, *model, interrupts).converse();
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand("chat", "talks in the terminal, with history");
  command->footer("Example:\n  deepinfer chat --thinking off --temperature 0.6");
  const auto flags = std::make_shared<Flags>();
  add_chat_flags(*command, flags->chat);
  add_model_flags(*command, flags->model);
  command->callback([flags, &action] { action = [flags] { return chat(*flags); }; });
}

}  // namespace deepinfer::apps

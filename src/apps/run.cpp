// deepinfer run: one request, its reply streamed to the terminal or given as the API's response.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/chat_request.h"
#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/files.h"
#include "apps/lines.h"
#include "apps/loading.h"
#include "apps/local_completion.h"
#include "apps/log_sink.h"
#include "apps/model_flags.h"
#include "apps/reply_printer.h"

namespace deepinfer::apps {
namespace {

struct Flags {
  ModelFlags model;
  ChatFlags chat;
  std::string prompt;
  std::filesystem::path messages_file;
  std::vector<std::filesystem::path> images;
  bool gives_json = false;
};

/// The messages of the request: --prompt, --messages, or all of stdin as one user message.
Result<json::Array> request_messages(const Flags& flags) {
  json::Array out;
  if (!flags.chat.system.empty()) {
    out.push_back(chat_message("system", flags.chat.system));
  }
  if (!flags.messages_file.empty()) {
    Result<json::Value> value = read_json_file(flags.messages_file);
    if (!value) {
      return std::unexpected(std::move(value.error()));
    }
    Result<json::Array> given = messages_of(std::move(*value), flags.messages_file.string());
    if (!given) {
      return given;
    }
    out.insert(out.end(), std::make_move_iterator(given->begin()), std::make_move_iterator(given->end()));
    return out;
  }
  std::string prompt = flags.prompt;
  if (prompt.empty()) {
    if (::isatty(STDIN_FILENO) != 0) {
      return fail(ErrorKind::invalid_argument, "say what to ask with --prompt TEXT or --messages FILE, or write it to stdin");
    }
    Result<std::string> text = read_file("-");
    if (!text) {
      return std::unexpected(std::move(text.error()));
    }
    prompt = std::move(*text);
    prompt.resize(prompt.find_last_not_of("\r\n") + 1);
  }
  if (prompt.empty()) {
    return fail(ErrorKind::invalid_argument, "the prompt on stdin is empty");
  }
  Result<json::Value> message = user_message(prompt, flags.images);
  if (!message) {
    return std::unexpected(std::move(message.error()));
  }
  out.push_back(std::move(*message));
  return out;
}

int run(const Flags& flags) {
  const Result<json::Array> messages = request_messages(flags);
  if (!messages) {
    return report(messages.error());
  }
  const Log log = make_log(flags.model.log_level);
  const auto model = load_served_model(flags.model, {.strict_official = flags.chat.strict_official}, log);
  if (!model) {
    return report(model.error());
  }
  const Result<json::Object> settings = chat_settings(flags.chat, (*model)->name, flags.gives_json ? ReplyForm::whole : ReplyForm::stream);
  if (!settings) {
    return report(settings.error());
  }
  ReplyPrinter printer;
  const auto reply = complete(*model, chat_body(*settings, *messages),
                              [&](const recipe::Event& event) {
                                if (!flags.gives_json) {
                                  printer.print(event);
                                }
                              },
                              {});
  if (!reply) {
    print_error(reply.error().message);
    return reply.error().status == 400 ? kWrongArguments : kFailed;
  }
  if (flags.gives_json) {
    print_line(reply->response);
  } else {
    printer.finish();
  }
  std::fputs((statistics_line(reply->statistics) + "\n").c_str(), stderr);
  return kDone;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand("run", "answers one request");
  command->footer(
      "Examples:\n  deepinfer run --prompt \"What is the capital of France?\"\n"
      "  echo \"Tell me a story\" | deepinfer run --thinking off --temperature 0.6 --seed 1\n"
      "  deepinfer run --model DIR --image cat.jpg --prompt \"What is in the picture?\"\n"
      "  deepinfer run --messages chat.json --tools tools.json --json");
  const auto flags = std::make_shared<Flags>();
  CLI::Option* const prompt = command->add_option("--prompt", flags->prompt, "the user's message (default: stdin)");
  CLI::Option* const messages =
      command->add_option("--messages", flags->messages_file, "JSON file with a list of messages, or an API body")->excludes(prompt);
  command->add_option("--image", flags->images, "image file that the user's message shows; may be repeated")->excludes(messages);
  command->add_flag("--json", flags->gives_json, "print the API's response instead of streaming text");
  add_chat_flags(*command, flags->chat);
  add_model_flags(*command, flags->model);
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace deepinfer::apps

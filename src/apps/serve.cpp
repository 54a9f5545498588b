// deepinfer serve: the HTTP server, from its flags to its end by a signal.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/interrupts.h"
#include "apps/loading.h"
#include "apps/log_sink.h"
#include "apps/model_flags.h"
#include "server/api_server.h"

namespace deepinfer::apps {
namespace {

using std::chrono::milliseconds;

/// How often the main thread looks whether loading is done, while it waits for signals.
constexpr milliseconds kPollInterval{50};
constexpr milliseconds kFaultInterval{1000};  // between two looks whether the device still works

struct Flags {
  ModelFlags model;
  server::HttpOptions http;
  ServedSettings served;
  std::filesystem::path api_key_file;
  std::filesystem::path admin_key_file;
  std::int32_t max_requests_per_key = 0;
  server::ResponseStoreLimits responses;
  std::string cors_origin;
  std::string log_format = "text";
  double idle_seconds = 75;
  double request_seconds = 0;
  double drain_seconds = 30;
  double watchdog_seconds = 30;
  bool has_no_playground = false;
  bool has_no_access_log = false;
  bool log_prompts = false;
};

milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

Result<server::ApiServerOptions> server_options(const Flags& flags) {
  server::ApiServerOptions out;
  out.http = flags.http;
  out.http.idle_timeout = to_milliseconds(flags.idle_seconds);
  out.http.reply_timeout = to_milliseconds(flags.request_seconds);
  if (!flags.api_key_file.empty()) {
    Result<server::ApiKeys> keys = server::ApiKeys::load(flags.api_key_file);
    if (!keys) {
      return std::unexpected(std::move(keys.error()));
    }
    out.keys = std::move(*keys);
  }
  if (!flags.admin_key_file.empty()) {
    Result<server::ApiKeys> keys = server::ApiKeys::load(flags.admin_key_file);
    if (!keys) {
      return std::unexpected(std::move(keys.error()));
    }
    out.admin_keys = std::move(*keys);
  }
  out.max_requests_per_key = flags.max_requests_per_key;
  out.responses = flags.responses;
  out.cors_origin = flags.cors_origin;
  out.has_playground = !flags.has_no_playground;
  out.log_format = flags.log_format == "json" ? server::LogFormat::json : server::LogFormat::text;
  out.log_prompts = flags.log_prompts;
  out.watchdog = to_milliseconds(flags.watchdog_seconds);
  out.version = DEEPINFER_VERSION;
  out.commit = DEEPINFER_COMMIT;
  out.log = flags.has_no_access_log ? Log() : make_plain_log();
  return out;
}

void reload_keys(const Flags& flags, server::ApiServer& server, const Log& log) {
  if (flags.api_key_file.empty()) {
    return;
  }
  Result<server::ApiKeys> keys = server::ApiKeys::load(flags.api_key_file);
  if (!keys) {
    log.error("the API keys stay as they were: " + keys.error().message);
    return;
  }
  server.replace_keys(std::move(*keys));
  log.info("API keys read again");
}

/// Says what to change when the server cannot listen.
int report_start(const Error& error) {
  switch (error.kind) {
    case ErrorKind::io:
      print_error(error.message + "; choose another --port or --host");
      return kFailed;
    case ErrorKind::corrupt:
      print_error(error.message + "; see --tls-cert-file and --tls-key-file");
      return kWrongArguments;
    default:
      print_error(error.message + "; give --api-key-file or another --host");
      return kWrongArguments;
  }
}

/// Says where the server is, on stdout so that scripts can wait for it.
void announce(const Flags& flags, const server::ApiServer& server, const server::ServedModel& model) {
  const char* const scheme = flags.http.tls_certificate_file.empty() ? "http" : "https";
  std::printf("serving %s on %s://%s:%d\n", model.name.c_str(), scheme, flags.http.address.c_str(), server.port());
  std::fflush(stdout);
}

/// Waits for the end: SIGINT and SIGTERM drain, a second one exits at once. SIGHUP reads the keys again. A device that fails ends it too,
/// once every request has had its error: what restarts servers starts a working one.
int serve(const Flags& flags) {
  const Interrupts interrupts({SIGINT, SIGTERM, SIGHUP});
  const Log log = make_log(flags.model.log_level);
  Result<server::ApiServerOptions> options = server_options(flags);
  if (!options) {
    return report(options.error());
  }
  auto server = server::ApiServer::start(std::move(*options));
  if (!server) {
    return report_start(server.error());
  }
  auto loading = std::async(std::launch::async, [&flags, &log] { return load_served_model(flags.model, flags.served, log); });
  std::shared_ptr<const server::ServedModel> model;
  std::string fault;
  for (;;) {
    if (!model && loading.wait_for(milliseconds(0)) == std::future_status::ready) {
      auto loaded = loading.get();
      if (!loaded) {
        return report(loaded.error());
      }
      model = std::move(*loaded);
      (*server)->serve(model);
      announce(flags, **server, *model);
    }
    const int signal = interrupts.wait(model ? kFaultInterval : kPollInterval);
    if (model) {
      fault = model->engine->stats().fault;
    }
    if (!fault.empty()) {
      print_error(fault);
      break;
    }
    if (signal == SIGHUP) {
      reload_keys(flags, **server, log);
    } else if (signal != 0) {
      break;
    }
  }
  if (!model) {
    std::_Exit(kDone);  // loading cannot be interrupted and nobody waits for it
  }
  auto draining = std::async(std::launch::async, [&] { (*server)->drain(to_milliseconds(flags.drain_seconds)); });
  while (draining.wait_for(milliseconds(0)) != std::future_status::ready) {
    const int signal = interrupts.wait(kPollInterval);
    if (signal == SIGINT || signal == SIGTERM) {
      std::_Exit(kFailed);
    }
  }
  return fault.empty() ? kDone : kFailed;
}

void add_limits(CLI::App& command, Flags& flags) {
  const std::string group = "Limits";
  const auto size = [&](const char* name, std::size_t& target, const char* text, const char* otherwise) {
    command.add_option(name, target, text)->transform(CLI::AsSizeValue(false))->default_str(otherwise)->group(group);
  };
  size("--max-body", flags.http.max_body_bytes, "largest request body", "32MiB");
  size("--max-header", flags.http.max_header_bytes, "largest request head", "16KiB");
  size("--max-unsent", flags.http.max_unsent_bytes, "unread bytes of a stream after which its client is too slow", "1MiB");
  command.add_option("--max-connections", flags.http.max_connections, "connections at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-requests-per-key", flags.max_requests_per_key, "requests of one API key at once; 0: no bound, more get status 429")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-stored-responses", flags.responses.max_responses, "responses kept for previous_response_id; 0: none")
      ->capture_default_str()
      ->group(group);
  size("--max-stored-bytes", flags.responses.max_bytes, "memory of these", "256MiB");
  command.add_option("--request-timeout", flags.request_seconds, "seconds after which a reply is ended with an error; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--idle-timeout", flags.idle_seconds, "seconds after which a quiet connection is closed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--drain-timeout", flags.drain_seconds, "seconds that running requests get after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--watchdog", flags.watchdog_seconds, "seconds without a step, with work pending, after which /health answers 503")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand("serve", "serves the APIs over HTTP");
  command->footer(
      "Examples:\n  deepinfer serve\n  deepinfer serve --host 0.0.0.0 --port 8080 --api-key-file keys.txt --served-model-name my-model");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--host", flags->http.address, "address to listen on; others than loopback need --api-key-file")
      ->capture_default_str();
  command->add_option("--port", flags->http.port, "port to listen on; 0: any free one")->check(CLI::Range(0, 65535))->capture_default_str();
  command->add_option("--served-model-name", flags->served.name, "name of the model in the APIs (default: the name of its directory)");
  command->add_option("--api-key-file", flags->api_key_file, "file with one accepted API key a line; read again on SIGHUP");
  command->add_option("--admin-key-file", flags->admin_key_file, "file with keys that may also POST /abort");
  command->add_flag("--strict-official", flags->served.strict_official,
                    "only what the official package does: no sampling extras, no n, no tool turns rendered as they were generated");
  CLI::Option* const certificate =
      command->add_option("--tls-cert-file", flags->http.tls_certificate_file, "PEM certificate chain: HTTPS instead of HTTP");
  CLI::Option* const key = command->add_option("--tls-key-file", flags->http.tls_key_file, "PEM key of the certificate");
  certificate->needs(key);
  key->needs(certificate);
  command->add_option("--cors-origin", flags->cors_origin, "origin of web pages that may use the server, * for all");
  command->add_option("--io-threads", flags->http.num_threads, "threads for connections, parsing and rendering")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--log-format", flags->log_format, "one line per request as text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_flag("--no-access-log", flags->has_no_access_log, "no line per request");
  command->add_flag("--log-prompts", flags->log_prompts, "these lines end with the prompt; a text line shows its first 300 bytes");
  command->add_flag("--no-playground", flags->has_no_playground, "no web page at /");
  add_limits(*command, *flags);
  flags->model.log_level = "info";  // a server tells at its start what it occupies
  add_model_flags(*command, flags->model);
  command->callback([flags, &action] { action = [flags] { return serve(*flags); }; });
}

}  // namespace deepinfer::apps

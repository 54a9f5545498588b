#include "apps/log_sink.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace deepinfer::apps {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

Log log_with(const std::string& pattern, spdlog::level::level_enum least) {
  auto logger = std::make_shared<spdlog::logger>("deepinfer", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(pattern);
  logger->set_level(least);
  logger->flush_on(spdlog::level::debug);
  return Log([logger](LogLevel level, std::string_view text) {
    logger->log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
  });
}

}  // namespace

Log make_log(const std::string& level) { return log_with("%Y-%m-%dT%H:%M:%S.%e %l %v", spdlog::level::from_str(level)); }

Log make_plain_log() { return log_with("%v", spdlog::level::debug); }

}  // namespace deepinfer::apps

// The logging seam: rooms say what happened to a Log they were given; apps/ decides where it goes.
// No formatting and no global here, so that a room needs no logging library.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

namespace deepinfer {

enum class LogLevel { debug, info, warning, error };

/// A value that carries the sink. A default-constructed Log is silent. The sink must be callable from any thread.
class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  Log() = default;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void debug(std::string_view text) const { write(LogLevel::debug, text); }
  void info(std::string_view text) const { write(LogLevel::info, text); }
  void warning(std::string_view text) const { write(LogLevel::warning, text); }
  void error(std::string_view text) const { write(LogLevel::error, text); }

 private:
  void write(LogLevel level, std::string_view text) const {
    if (sink_) {
      sink_(level, text);
    }
  }

  Sink sink_;
};

}  // namespace deepinfer

// Lines of a file descriptor, without the buffering of iostreams: a line is there as soon as its line feed is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::apps {

class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}

  /// The next line without its line feed; nullopt at the end of the input or, when given, as soon as `interrupt_descriptor` is readable.
  /// The last line needs no line feed.
  [[nodiscard]] std::optional<std::string> next(int interrupt_descriptor = -1);
  [[nodiscard]] bool is_at_end() const { return is_at_end_; }

 private:
  int descriptor_;
  std::string unread_;
  bool is_at_end_ = false;
};

/// The loop of a probe: every line of stdin that is not empty gives one line on stdout, flushed. Ends with the input, or when
/// `answer` gives nullopt.
void answer_lines(const std::function<std::optional<std::string>(std::string_view)>& answer);

/// Writes one line to stdout and flushes it.
void print_line(std::string_view line);

}  // namespace deepinfer::apps

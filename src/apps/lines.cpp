#include "apps/lines.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace deepinfer::apps {

std::optional<std::string> LineReader::next(int interrupt_descriptor) {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = unread_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    searched = unread_.size();
    if (is_at_end_) {
      return unread_.empty() ? std::nullopt : std::optional(std::exchange(unread_, {}));
    }
    pollfd waiting[] = {{.fd = descriptor_, .events = POLLIN, .revents = 0}, {.fd = interrupt_descriptor, .events = POLLIN, .revents = 0}};
    ::poll(waiting, interrupt_descriptor >= 0 ? 2 : 1, -1);
    if (waiting[1].revents != 0) {
      return std::nullopt;
    }
    char bytes[65536];
    const ssize_t size = ::read(descriptor_, bytes, sizeof bytes);
    is_at_end_ = size <= 0;
    unread_.append(bytes, size > 0 ? static_cast<std::size_t>(size) : 0);
  }
}

void answer_lines(const std::function<std::optional<std::string>(std::string_view)>& answer) {
  LineReader reader(STDIN_FILENO);
  while (const std::optional<std::string> line = reader.next()) {
    if (line->find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const std::optional<std::string> reply = answer(*line);
    if (!reply) {
      return;
    }
    print_line(*reply);
  }
}

void print_line(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace deepinfer::apps

#include "apps/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace deepinfer::apps {
namespace {

constexpr std::size_t kBarWidth = 28;
constexpr std::chrono::milliseconds kRedrawInterval{50};
constexpr std::size_t kTenths = 10;

}  // namespace

std::string progress_line(std::string_view what, std::size_t done, std::size_t total, std::string_view note, std::size_t width) {
  std::string out(what);
  if (total > 0) {
    const std::size_t filled = done * width / total;
    const std::string percent = std::to_string(done * 100 / total) + "%";
    out += "  [" + std::string(filled, '#') + std::string(width - filled, ' ') + "]  " + std::string(4 - percent.size(), ' ') + percent;
  }
  if (!note.empty()) {
    out.append("  ").append(note);
  }
  return out;
}

Progress::Progress(std::string what) : what_(std::move(what)), is_terminal_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (has_bar_) {
    std::fputs("\n", stderr);
  }
}

void Progress::show(std::size_t done, std::size_t total, std::string_view note) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_last = done == total;
  if (is_terminal_) {
    if (is_last || !has_bar_ || now - last_shown_ >= kRedrawInterval) {
      has_bar_ = true;
      last_shown_ = now;
      std::fputs(("\r\x1b[K" + progress_line(what_, done, total, note, kBarWidth)).c_str(), stderr);
    }
    return;
  }
  const std::size_t tenth = total == 0 ? 0 : done * kTenths / total;
  if (tenth > last_tenth_) {
    last_tenth_ = tenth;
    std::fputs((progress_line(what_, done, total, note, kBarWidth) + "\n").c_str(), stderr);
  }
}

}  // namespace deepinfer::apps

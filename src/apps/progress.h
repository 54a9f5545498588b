// Progress on stderr: a bar that moves in place on a terminal, otherwise a line every tenth of the work. Machine output stays clean.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace deepinfer::apps {

class Progress {
 public:
  /// `what` stands before the bar: "loading nano".
  explicit Progress(std::string what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends the line of a bar that is on the screen.
  ~Progress();

  /// `done` of `total` (0: unknown, then only `note` is shown). Cheap enough to call for every item.
  void show(std::size_t done, std::size_t total, std::string_view note = {});

 private:
  std::string what_;
  bool is_terminal_;
  bool has_bar_ = false;
  std::size_t last_tenth_ = 0;
  std::chrono::steady_clock::time_point last_shown_;
};

/// "loading nano  [#########           ]  45%  layer 5 of 12"; `width` is the number of cells between the brackets.
[[nodiscard]] std::string progress_line(std::string_view what, std::size_t done, std::size_t total, std::string_view note,
                                        std::size_t width);

}  // namespace deepinfer::apps

// Runs the deepinfer program with given arguments, input and environment, and keeps what it said.
#pragma once

#include <string>
#include <vector>

namespace deepinfer::apps {

struct Ran {
  int exit_code = -1;  ///< 128 + n when signal n ended it
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string input = {};
  std::vector<std::string> environment = {};  ///< further variables, NAME=VALUE
};

/// Waits for the end, at most two minutes.
[[nodiscard]] Ran run_program(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// Lines of a text, without their line feeds.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

}  // namespace deepinfer::apps

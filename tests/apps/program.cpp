#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace deepinfer::apps {
namespace {

/// A temporary file that is gone afterwards: pipes would need a thread per end.
class ScratchFile {
 public:
  ScratchFile() : path_((std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string()) {
    descriptor_ = ::mkstemp(path_.data());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    ::close(descriptor_);
    std::filesystem::remove(path_);
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  void fill(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  [[nodiscard]] std::string text() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

/// Ours without DEEPINFER_ variables: tests say which of these they want.
std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("DEEPINFER_")) {
      out.emplace_back(*entry);
    }
  }
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace

Ran run_program(const std::vector<std::string>& arguments, const RunOptions& options) {
  const ScratchFile in;
  const ScratchFile out;
  const ScratchFile err;
  in.fill(options.input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);
  std::vector<std::string> all{"/usr/bin/timeout", "120", DEEPINFER_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = environment_with(options.environment);
  pid_t child = 0;
  Ran ran;
  if (::posix_spawn(&child, all.front().c_str(), &actions, nullptr, pointers(all).data(), pointers(environment).data()) == 0) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  posix_spawn_file_actions_destroy(&actions);
  ran.out = out.text();
  ran.err = err.text();
  return ran;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace deepinfer::apps

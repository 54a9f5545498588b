#include "apps/exit_code.h"

#include <cstdio>
#include <string>

namespace deepinfer::apps {

void print_error(std::string_view message) {
  const std::string line = "deepinfer: " + std::string(message) + "\n";
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
}

int report(const Error& error) {
  print_error(error.message);
  return error.kind == ErrorKind::invalid_argument ? kWrongArguments : kFailed;
}

}  // namespace deepinfer::apps

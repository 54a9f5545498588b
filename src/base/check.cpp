#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace deepinfer {

void broken_invariant(std::string_view what_must_hold, std::source_location where) {
  std::fprintf(stderr, "%s:%u: broken invariant: %.*s\n", where.file_name(), static_cast<unsigned>(where.line()),
               static_cast<int>(what_must_hold.size()), what_must_hold.data());
  std::abort();
}

}  // namespace deepinfer

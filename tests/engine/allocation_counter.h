// How often this program has allocated: its global operator new is replaced by one that counts.
#pragma once

#include <cstdint>

namespace deepinfer::test {

[[nodiscard]] std::int64_t num_allocations();

}  // namespace deepinfer::test

// Bounds on compiling and on following a grammar (structured_output.md, "Limits").
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace deepinfer::grammar {

/// Bounds on what one matcher may build while it runs; over them caches are dropped and rebuilt.
struct RunLimits {
  std::uint32_t states = 200'000;         ///< parser states and lexer states
  std::uint32_t parts = 500'000;          ///< of unions and intersections per mask or token; more ends the request with `limit`
  std::uint32_t items = 50'000;           ///< parser items per byte; more ends the request with `limit`
  std::size_t runtime_bytes = 64U << 20;  ///< caches of one matcher
};

struct Limits {
  std::size_t text_bytes = 1U << 20;
  std::size_t tools_bytes = 4U << 20;
  std::int32_t depth = 256;
  std::chrono::milliseconds compile_time{5000};
  std::size_t compiled_bytes = 64U << 20;
  RunLimits run = {};
  std::size_t cache_bytes = 256U << 20;
};

}  // namespace deepinfer::grammar

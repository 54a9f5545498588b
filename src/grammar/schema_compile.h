// JSON Schema text into a network: reading, expanding and emitting in one call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/budget.h"
#include "grammar/compile.h"
#include "grammar/network.h"

namespace deepinfer::grammar {

struct CompiledSchema {
  Network network;
  std::vector<std::string> warnings;
};

[[nodiscard]] Compiled<CompiledSchema> compile_schema(ExprPool& pool, std::string_view text, const CompileOptions& options,
                                                      const Budget& budget);

}  // namespace deepinfer::grammar

// The one way from a constraint's text to a CompiledGrammar. Pure: no threads, no cache (cache.h), no request.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "grammar/compile_error.h"
#include "grammar/limits.h"

namespace deepinfer::grammar {

class CompiledGrammar;

enum class GrammarKind { json_schema, regex, ebnf, json_object };

enum class Additional { open, closed };
enum class PropertyOrder { schema, any };
enum class FormatCheck { assert_formats, ignore };

/// A fixed layout equals Python's json.dumps(indent=…, separators=(item, key)).
struct Layout {
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  std::optional<std::int32_t> indent = {};
};

struct CompileOptions {
  Additional additional = Additional::open;
  PropertyOrder order = PropertyOrder::schema;
  FormatCheck format = FormatCheck::assert_formats;
  std::uint32_t max_blanks = 64;      ///< in one place between tokens; 0 is compact
  std::optional<Layout> layout = {};  ///< replaces max_blanks
};

struct CompileJob {
  GrammarKind kind = GrammarKind::json_schema;
  std::string_view text = {};
  CompileOptions options = {};
  Limits limits = {};
  const std::atomic<bool>* is_cancelled = nullptr;
};

/// Errors: see compile_error.h; every message names what and where. Never throws, bounded by `limits`.
[[nodiscard]] Compiled<std::shared_ptr<const CompiledGrammar>> compile(const CompileJob& job);

}  // namespace deepinfer::grammar

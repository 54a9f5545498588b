// Compile times, first and repeated masks of typical constraints over a tokenizer given by DEEPINFER_BENCH_TOKENIZER at
// configure time. The figures against other engines come from grammar_bar.py, not from here.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::grammar;

constexpr std::string_view kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":80},"age":{"type":"integer","minimum":0,"maximum":150},)"
    R"("tags":{"type":"array","items":{"type":"string"}},"when":{"type":"string","format":"date-time"}},"required":["name","age"]})";

const tokenizer::Tokenizer& the_tokenizer() {
  static const tokenizer::Tokenizer kTokenizer = [] {
    auto loaded = tokenizer::Tokenizer::load(DEEPINFER_BENCH_TOKENIZER);
    check(loaded.has_value(), "the benchmark's tokenizer can be read");
    return *loaded;
  }();
  return kTokenizer;
}

std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto kVocabulary = std::make_shared<const Vocabulary>(make_vocabulary(the_tokenizer()));
  return kVocabulary;
}

void compile_schema_text(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(compile({.kind = GrammarKind::json_schema, .text = kSchema, .options = {}, .limits = {}}));
  }
}
BENCHMARK(compile_schema_text);

/// All masks along one text; range 0: a grammar never used before, 1: warm.
void masks_along_a_text(benchmark::State& state) {
  const std::vector<TokenId> ids = the_tokenizer().encode(
      R"({"name": "Ada Lovelace", "age": 36, "tags": ["math", "engines"], "when": "1843-09-05T12:00:00Z"})", tokenizer::AddedTokens::ignore);
  std::vector<std::uint32_t> mask(vocabulary()->mask_words());
  auto grammar = compile({.kind = GrammarKind::json_schema, .text = kSchema, .options = {}, .limits = {}});
  for (auto _ : state) {
    if (state.range(0) == 0) {
      state.PauseTiming();
      grammar = compile({.kind = GrammarKind::json_schema, .text = kSchema, .options = {}, .limits = {}});
      state.ResumeTiming();
    }
    Matcher matcher(*grammar, vocabulary(), {.end_ids = {TokenId{1}}, .trigger_ids = {}, .bound_id = {}});
    for (const TokenId id : ids) {
      matcher.fill_mask(mask);
      check(matcher.accept(id), "the text fits the schema");
    }
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(ids.size()));
}
BENCHMARK(masks_along_a_text)->Arg(0)->Arg(1);

}  // namespace

BENCHMARK_MAIN();

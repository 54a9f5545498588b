// Speed of reply parsing alone and of parsing with the events of each API, per piece of a few bytes as a model gives them.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/reply_parser.h"
#include "recipe/reply_stream.h"

namespace {

using namespace deepinfer::recipe;

/// Reasoning, content and five calls, about 20 KB.
const std::string& reply() {
  static const std::string text = [] {
    std::string out;
    for (int i = 0; i < 300; ++i) {
      out += "Let me think about this step by step, the answer depends on several values. ";
    }
    out += "</think>\n\n";
    for (int i = 0; i < 100; ++i) {
      out += "The result is 42 in all cases.\n";
    }
    out += "\n<｜DSML｜ calls>\n";
    for (int i = 0; i < 5; ++i) {
      out +=
          "<｜DSML｜ invoke name=\"tool\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Paris, \"France\"</｜DSML｜ parameter>\n"
          "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n";
    }
    return out + "</｜DSML｜ calls>";
  }();
  return text;
}

std::vector<std::string_view> pieces() {
  constexpr std::size_t kPieceBytes = 4;
  std::vector<std::string_view> out;
  for (std::string_view rest = reply(); !rest.empty(); rest.remove_prefix(std::min(rest.size(), kPieceBytes))) {
    out.push_back(rest.substr(0, kPieceBytes));
  }
  return out;
}

ParsingOptions thinking_with_tools() { return {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_start, .stop_sequences = {}}; }

void parse(benchmark::State& state) {
  const std::vector<std::string_view> all = pieces();
  for (auto _ : state) {
    ReplyParser parser(thinking_with_tools(), SpecialTokens());
    for (const std::string_view piece : all) {
      benchmark::DoNotOptimize(parser.feed({.text = piece, .kind = SegmentKind::text, .source = 0}));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(all.size()));
}

void stream(benchmark::State& state, Api api) {
  const std::vector<std::string_view> all = pieces();
  for (auto _ : state) {
    ReplyStreamOptions options;
    options.api = api;
    options.id = "chatcmpl-0123456789";
    options.model = "DeepSeek-V4.1-Flash";
    options.parsing = thinking_with_tools();
    options.random_bits = [] { return std::uint64_t{0}; };
    options.unix_time = [] { return std::int64_t{0}; };
    ReplyStream stream(std::move(options));
    for (const std::string_view piece : all) {
      benchmark::DoNotOptimize(stream.text(piece, 1));
    }
    benchmark::DoNotOptimize(stream.finish(BackendFinish::stop));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(all.size()));
}

BENCHMARK(parse);
BENCHMARK_CAPTURE(stream, chat, Api::chat);
BENCHMARK_CAPTURE(stream, messages, Api::messages);
BENCHMARK_CAPTURE(stream, responses, Api::responses);

}  // namespace

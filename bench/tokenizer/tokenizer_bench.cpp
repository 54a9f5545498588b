// Speed of the tokenizer room on given texts. Bytes per second for encoding, items (tokens) per second for the way back.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/detokenizer.h"
#include "tokenizer/engram_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::tokenizer;

struct Text {
  std::string name;
  std::string bytes;
  std::vector<TokenId> ids;
};

std::string read(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

void load(benchmark::State& state, const std::string& json) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Tokenizer::parse(json));
  }
}

void compress(benchmark::State& state, const Tokenizer& tokenizer) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(compress_vocabulary(tokenizer));
  }
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const Text& text, std::int32_t num_threads) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(tokenizer.encode(text.bytes, AddedTokens::recognise, num_threads));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.bytes.size()));
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const Text& text) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(tokenizer.decode(text.ids, SpecialTokens::keep));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(text.ids.size()));
}

void stream(benchmark::State& state, const Tokenizer& tokenizer, const Text& text) {
  std::string piece;
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer);
    for (const TokenId id : text.ids) {
      piece.clear();
      detokenizer.append(id, piece);
      benchmark::DoNotOptimize(piece);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(text.ids.size()));
}

void register_all(const std::string& json, const Tokenizer& tokenizer, const std::vector<Text>& texts) {
  const auto milliseconds = [](benchmark::internal::Benchmark* bench) { bench->Unit(benchmark::kMillisecond); };
  milliseconds(benchmark::RegisterBenchmark("load", load, json));
  milliseconds(benchmark::RegisterBenchmark("engram_classes", [&](benchmark::State& state) { compress(state, tokenizer); }));
  for (const Text& text : texts) {
    benchmark::RegisterBenchmark(("encode/" + text.name).c_str(), [&](benchmark::State& state) { encode(state, tokenizer, text, 1); });
    benchmark::RegisterBenchmark(("encode/" + text.name + "/two_threads").c_str(), [&](benchmark::State& state) {
      encode(state, tokenizer, text, 2);
    })->UseRealTime();
    benchmark::RegisterBenchmark(("decode/" + text.name).c_str(), [&](benchmark::State& state) { decode(state, tokenizer, text); });
    benchmark::RegisterBenchmark(("stream/" + text.name).c_str(), [&](benchmark::State& state) { stream(state, tokenizer, text); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  if (arguments.size() < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER.json TEXT...\n");
    return 2;
  }
  const std::string json = read(arguments[1]);
  const deepinfer::Result<Tokenizer> tokenizer = Tokenizer::parse(json);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  std::vector<Text> texts;
  for (const char* path : arguments.subspan(2)) {
    Text text{.name = std::filesystem::path(path).filename().string(), .bytes = read(path), .ids = {}};
    text.ids = tokenizer->encode(text.bytes, AddedTokens::recognise);
    texts.push_back(std::move(text));
  }
  register_all(json, *tokenizer, texts);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

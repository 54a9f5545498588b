// A server whose replies come from a table of prompts, for comparing its bodies and streams with those of the official components
// (compare_with_official.py). Engine, tokenizer, recipe and server are the real ones. Not a test by itself.
// Usage: table_server TABLE.jsonl   lines of {"prompt": [ids], "reply": [ids]}; prints its address; ends with its standard input.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "engine/engine_thread.h"
#include "server/api_server.h"

namespace deepinfer::server {
namespace {

constexpr TokenId kEos{1};
constexpr std::int32_t kContext = 8192;
constexpr std::int32_t kMaxRequests = 4;

struct Entry {
  std::vector<TokenId> prompt;
  std::vector<TokenId> reply;
};

std::vector<TokenId> ids_of(const json::Value& line, std::string_view name) {
  std::vector<TokenId> out;
  for (const json::Value& id : *line.find(name)->as_array()) {
    out.push_back(TokenId{static_cast<std::int32_t>(id.as_number()->as_int64().value())});
  }
  return out;
}

std::vector<Entry> read_table(const char* file) {
  std::ifstream in(file);
  check(in.good(), "the table can be read");
  std::vector<Entry> out;
  for (std::string text; std::getline(in, text);) {
    const auto line = json::parse(text);
    check(line.has_value(), "every line of the table is JSON");
    out.push_back({.prompt = ids_of(*line, "prompt"), .reply = ids_of(*line, "reply")});
  }
  return out;
}

/// The only likely token after a history is the next one of its reply.
class TableModel {
 public:
  TableModel(std::vector<Entry> table, std::int32_t vocab_size) : table_(std::move(table)), vocab_size_(vocab_size) {}

  std::span<const float> forward(std::span<const model::Chunk> chunks) {
    logits_.clear();
    for (const model::Chunk& chunk : chunks) {
      std::vector<TokenId>& history = histories_[chunk.slot];
      history.resize(static_cast<std::size_t>(chunk.first_position));
      history.insert(history.end(), chunk.tokens.begin(), chunk.tokens.end());
      for (std::ptrdiff_t behind = chunk.num_logit_rows - 1; behind >= 0; --behind) {
        const std::size_t begin = logits_.size();
        logits_.resize(begin + static_cast<std::size_t>(vocab_size_), -100.0F);
        logits_[begin + static_cast<std::size_t>(next({history.begin(), history.end() - behind}).value)] = 100.0F;
      }
    }
    return logits_;
  }

 private:
  [[nodiscard]] TokenId next(const std::vector<TokenId>& history) const {
    for (const Entry& entry : table_) {
      const std::size_t size = entry.prompt.size();
      if (history.size() < size || history.size() > size + entry.reply.size()) {
        continue;
      }
      const auto generated = std::span(history).subspan(size);
      if (std::ranges::equal(std::span(history).first(size), entry.prompt) &&
          std::ranges::equal(generated, std::span(entry.reply).first(generated.size()))) {
        return generated.size() == entry.reply.size() ? kEos : entry.reply[generated.size()];
      }
    }
    return kEos;
  }

  std::vector<Entry> table_;
  std::int32_t vocab_size_;
  std::map<SlotId, std::vector<TokenId>> histories_;
  std::vector<float> logits_;
};

std::shared_ptr<const ServedModel> served(const char* table) {
  auto tokenizer = tokenizer::Tokenizer::load(DEEPINFER_MODELS "/nano/tokenizer.json");
  check(tokenizer.has_value(), "nano's tokenizer can be read");
  auto model = std::make_shared<TableModel>(read_table(table), tokenizer->vocab_size());
  engine::EngineParts parts{.model = engine::synchronous([model](std::span<const model::Chunk> chunks) { return model->forward(chunks); }),
                            .token_bytes = [copy = *tokenizer](TokenId id) { return copy.bytes(id); },
                            .vocab_size = tokenizer->vocab_size(),
                            .eos = kEos,
                            .geometry = {.positions_per_block = 128, .num_blocks = 1 + 80 * kMaxRequests, .num_slots = 1 + kMaxRequests}};
  const engine::EngineOptions options{
      .max_requests = kMaxRequests, .max_batched_tokens = 512, .max_model_len = kContext, .prefix_cache = false};
  auto thread = std::make_shared<engine::EngineThread>(std::make_unique<engine::Engine>(std::move(parts), options));
  return std::make_shared<const ServedModel>(ServedModel{.name = "nano",
                                                         .device = "table",
                                                         .context_length = kContext,
                                                         .strict_official = true,
                                                         .convert = convert_options("nano"),
                                                         .tokenizer = *tokenizer,
                                                         .engine = std::move(thread)});
}

int serve(const char* table) {
  ApiServerOptions options;
  options.http.port = 0;
  auto server = ApiServer::start(std::move(options));
  check(server.has_value(), "a loopback port is free");
  (*server)->serve(served(table));
  std::printf("http://127.0.0.1:%d\n", (*server)->port());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer::server

int main(int argc, char** argv) {
  deepinfer::check(argc == 2, "the table is given");
  return deepinfer::server::serve(argv[1]);
}

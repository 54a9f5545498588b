// Constraints made to hurt, sent to the whole server with nano beside ordinary requests: each gets its reply or one clear error with the
// reason, the neighbours' replies are bit for bit those they get alone, and memory stays where it was.
#include <gtest/gtest.h>

#include <malloc.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "api_bench.h"
#include "engine/load.h"
#include "support/hostile_input.h"
#include "support/test_device.h"

namespace deepinfer::server {
namespace {

using test::doubling_schema;
using test::repeated;
using test::resident_bytes;

constexpr std::size_t kCacheBytes = 8U << 20;

/// In the order in which they may go: the engine stands on its device.
struct OwnedNano {
  std::unique_ptr<Device> device;
  engine::EngineThread thread;
};

std::shared_ptr<const ServedModel> nano_model(const grammar::CompilePoolOptions& pool) {
  std::unique_ptr<Device> device = test::test_device({});
  const engine::EngineOptions options{.max_requests = 8, .max_batched_tokens = 128, .max_model_len = 4096};
  auto loaded = engine::load_engine(std::filesystem::path(DEEPINFER_MODELS) / "nano", options, *device);
  check(loaded.has_value(), "nano loads");
  const auto owner = std::shared_ptr<OwnedNano>(new OwnedNano{std::move(device), engine::EngineThread(std::move(loaded->engine))});
  return std::make_shared<const ServedModel>(
      ServedModel{.name = "nano",
                  .device = "test",
                  .context_length = options.max_model_len,
                  .convert = convert_options("nano"),
                  .tokenizer = loaded->tokenizer,
                  .engine = std::shared_ptr<engine::EngineThread>(owner, &owner->thread),
                  .compiler = std::make_shared<grammar::CompilePool>(loaded->vocabulary, pool),
                  .constraints = *constraint_settings(loaded->tokenizer, ToolConstraint::structure)});
}

std::string chat(const std::string& more) {
  return R"({"model":"nano","messages":[{"role":"user","content":"Name a city."}],"thinking":{"type":"disabled"})" + more + "}";
}
std::string quoted(const std::string& text) { return json::to_text(json::Value(text)); }
std::string format_of(const std::string& kind, const std::string& member, const std::string& text) {
  return R"(,"max_tokens":8,"response_format":{"type":")" + kind + R"(",")" + member + R"(":)" + quoted(text) + "}";
}
std::string schema_format(const std::string& schema) {
  return R"(,"max_tokens":8,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema + "}}";
}

/// The ids of a, b and their like, as far as it matters here: all ids of one letter.
std::string bias_against_letters() {
  std::string out;
  for (std::int32_t id = 0; id < nano_tokenizer().vocab_size(); ++id) {
    const std::string_view bytes = nano_tokenizer().bytes(TokenId{id});
    if (bytes == "a" || bytes == "b" || bytes == "aa" || bytes == "ab") {
      out += (out.empty() ? "\"" : ",\"") + std::to_string(id) + R"(":-100)";
    }
  }
  return R"(,"logit_bias":{)" + out + "}";
}

struct Hostile {
  const char* what;
  std::string more;
  int status;
  const char* says;  ///< in the body
};

std::vector<Hostile> hostile_requests() {
  const std::string groups = repeated("(", 100'000) + "a" + repeated(")", 100'000);
  const std::string arrays = repeated(R"({"items":)", 10'000) + "{}" + repeated("}", 10'000);
  return {
      {"nested repeats", format_of("regex", "regex", "(a+)+b"), 200, "\"finish_reason\""},
      {"an alternative of the same", format_of("regex", "regex", "(a|a|aa)*b"), 200, "\"finish_reason\""},
      {"exponential when made deterministic", format_of("regex", "regex", "(a|b)*a(a|b){60}"), 200, "\"finish_reason\""},
      {"counts of counts", format_of("regex", "regex", "((a{1,100}){1,100}){1,100}"), 200, "\"finish_reason\""},
      {"an ambiguous grammar", format_of("ebnf", "grammar", "root ::= root root | root root root | \"a\" | \"b\""), 200, "\"finish_reason\""},
      {"deep groups", format_of("regex", "regex", groups), 400, "limit"},
      {"deep recursion of a schema", schema_format(arrays), 400, "error"},
      {"a regular expression of ten megabytes", format_of("regex", "regex", std::string(10U << 20, 'a')), 400, "limit"},
      {"a schema of ten megabytes", schema_format(R"({"description":")" + std::string(10U << 20, 'x') + R"("})"), 400, "maximum context length"},
      {"a regular expression without a match", format_of("regex", "regex", "a^b"), 400, "unsatisfiable"},
      {"a grammar without an end", format_of("ebnf", "grammar", "root ::= \"a\" root"), 400, "unsatisfiable"},
      {"a schema that nothing fits", schema_format("false"), 400, "unsatisfiable"},
      {"a loop of references", schema_format(R"({"$ref":"#"})"), 400, "unsatisfiable"},
      {"all that is allowed is biased away", format_of("regex", "regex", "[ab]{3}") + bias_against_letters(), 200, R"("finish_reason":"stop")"},
  };
}

std::vector<std::string> neighbours() {
  const std::string logprobs = R"(,"logprobs":true,"top_logprobs":2)";
  return {chat(R"(,"max_tokens":24,"temperature":0)" + logprobs), chat(R"(,"max_tokens":24,"temperature":1,"seed":7)" + logprobs),
          chat(R"(,"max_tokens":24,"temperature":1,"seed":8,"response_format":{"type":"regex","regex":"[A-Z][a-z ]{3,40}"})" + logprobs)};
}

/// What a client sees of the tokens: texts, log-probabilities to the last bit, and why they end.
std::string choices_of(const ClientResponse& response) {
  const auto body = json::parse(response.body);
  const json::Value* const choices = body ? body->find("choices") : nullptr;
  return choices == nullptr ? "status " + std::to_string(response.status) + ": " + response.body : json::to_text(*choices);
}

/// Neighbours that ask again and again until they are let go; each reply is compared with the one it had alone.
class Neighbours {
 public:
  explicit Neighbours(const ApiBench& bench) {
    for (const std::string& body : neighbours()) {
      const std::string alone = choices_of(bench.post(kChat, body));
      EXPECT_EQ(alone.find("status"), std::string::npos) << alone;
      threads_.emplace_back([this, &bench, body, alone] {
        while (!is_done_) {
          EXPECT_EQ(choices_of(bench.post(kChat, body)), alone);
          ++num_replies_;
        }
      });
    }
  }
  ~Neighbours() {
    is_done_ = true;
    threads_.clear();
    EXPECT_GE(num_replies_, 3);
  }

 private:
  std::atomic<bool> is_done_ = false;
  std::atomic<int> num_replies_ = 0;
  std::vector<std::jthread> threads_;
};

TEST(HostileConstraint, EveryOneGetsItsReasonAndTheNeighboursNoticeNothing) {
  const ApiBench bench({.served = nano_model({.num_threads = 2, .cache_bytes = kCacheBytes})});
  {
    const Neighbours beside(bench);
    for (const Hostile& hostile : hostile_requests()) {
      for (const std::string stream : {"", R"(,"stream":true)"}) {
        const ClientResponse response = bench.post(kChat, chat(hostile.more + stream));
        EXPECT_EQ(response.status, hostile.status) << hostile.what << ": " << response.body.substr(0, 300);
        EXPECT_NE(response.body.find(hostile.says), std::string::npos) << hostile.what << ": " << response.body.substr(0, 300);
        EXPECT_LT(response.body.size(), 20'000U) << hostile.what;
      }
    }
    for (const char* combine : {"allOf", "anyOf", "oneOf"}) {  // in time or not: an answer either way
      const ClientResponse response = bench.post(kChat, chat(schema_format(doubling_schema(combine))));
      EXPECT_TRUE(response.status == 200 || response.status == 400) << combine << ": " << response.body;
    }
  }
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(HostileConstraint, ACompileBeyondItsBudgetIsA400ThatSaysSo) {
  const ApiBench bench({.served = nano_model({.num_threads = 1, .max_delay = std::chrono::milliseconds(1), .cache_bytes = kCacheBytes})});
  for (int i = 0; i < 20; ++i) {
    const ClientResponse response =
        bench.post(kChat, chat(schema_format(R"({"title":")" + std::to_string(i) + R"(",)" + doubling_schema("oneOf").substr(1))));
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_NE(response.body.find(R"("code":"timeout")"), std::string::npos) << response.body;
  }
  const ClientResponse plain = bench.post(kChat, chat(R"(,"max_tokens":4)"));
  EXPECT_EQ(plain.status, 200) << plain.body;
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(HostileConstraint, HundredsOfDistinctSchemasLeaveMemoryWhereItWas) {
  constexpr int kNumSchemas = 200;
  constexpr std::size_t kMostMore = 24U << 20;
  const ApiBench bench({.served = nano_model({.num_threads = 2, .cache_bytes = kCacheBytes})});
  const Neighbours beside(bench);
  std::size_t early = 0;
  for (int i = 0; i < kNumSchemas; ++i) {
    const std::string name = "member" + std::to_string(i);
    const ClientResponse response = bench.post(
        kChat, chat(schema_format(R"({"type":"object","properties":{")" + name + R"(":{"type":"string","pattern":"^x{)" +
                                  std::to_string(i) + R"(}[a-f]*$"}},"required":[")" + name + "\"]}")));
    EXPECT_EQ(response.status, 200) << response.body;
    if (i == kNumSchemas / 2) {
      malloc_trim(0);
      early = resident_bytes();
    }
  }
  malloc_trim(0);
  EXPECT_LT(resident_bytes(), early + kMostMore);
}

}  // namespace
}  // namespace deepinfer::server

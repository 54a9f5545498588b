// Everything at once: all APIs, streams and bodies, clients that leave, aborts, stores, metrics. The end is silence and normal service.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

struct Kind {
  const char* path;
  std::string body;
  bool is_endless = false;  ///< its client leaves in the middle
};

std::vector<Kind> kinds() {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}])";
  return {
      {"/v1/chat/completions", chat_body("hello")},
      {"/v1/chat/completions", chat_body("unicode", R"(,"stream":true,"n":2)")},
      {"/v1/chat/completions", chat_body("call", tools)},
      {"/v1/chat/completions", chat_body("hello", R"(,"temperature":1.5,"frequency_penalty":0.5,"logit_bias":{"5":1},"min_p":0.1)")},
      {"/v1/chat/completions", chat_body("endless", R"(,"stream":true,"n":3)"), true},
      {"/v1/messages",
       R"({"model":"nano","max_tokens":50,"messages":[{"role":"user","content":"[script:hello]"}],"thinking":{"type":"disabled"}})"},
      {"/v1/responses", R"({"model":"nano","input":"[script:hello]","reasoning":{"effort":"none"}})"},
      {"/v1/responses", R"({"model":"nano","input":"[script:endless]","reasoning":{"effort":"none"},"stream":true})", true},
      {"/v1/completions", R"({"model":"nano","prompt":["[script:hello]","[script:unicode]"],"max_tokens":50,"n":2,"logprobs":2})"},
      {"/v1/completions", R"({"model":"nano","prompt":"[script:endless]","max_tokens":1500,"stream":true})", true},
      {"/render", R"({"api":"messages","body":{"model":"nano","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}})"},
  };
}

TEST(MixedLoad, EndsInSilence) {
  constexpr int kNumClients = 6;
  constexpr int kNumRequests = 12;
  constexpr std::uint64_t kSeed = 20270;
  ApiBenchOptions options{.model = {.max_requests = 8}};
  options.server.responses.max_responses = 3;
  options.server.turns.max_turns = 2;
  ApiBench bench(std::move(options));
  const std::vector<Kind> all = kinds();
  std::atomic<bool> is_done = false;
  std::jthread administrator([&bench, &is_done] {
    for (int i = 0; !is_done; ++i) {
      EXPECT_EQ(bench.post("/abort", R"({"request_id":"client-)" + std::to_string(i % kNumClients) + "\"}").status, 200);
      EXPECT_EQ(bench.get("/metrics").status, 200);
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
    }
  });
  {
    std::vector<std::jthread> clients;
    for (int c = 0; c < kNumClients; ++c) {
      clients.emplace_back([&bench, &all, c] {
        std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(c));
        const std::string header = "x-request-id: client-" + std::to_string(c) + "\r\n";
        for (int i = 0; i < kNumRequests; ++i) {
          const Kind& kind = all[random() % all.size()];
          auto client = std::make_unique<LoopbackClient>(bench.server->port());
          client->request("POST", kind.path, kind.body, header);
          if (kind.is_endless) {
            client->receive_until("la");
            client.reset();
            continue;
          }
          const int status = client->response().status;
          EXPECT_TRUE(status == 200 || status == 503) << kind.path << ": " << status;  // 503: aborted
        }
      });
    }
  }
  is_done = true;
  administrator.join();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  bench.expect_normal_service();
}

}  // namespace
}  // namespace deepinfer::server

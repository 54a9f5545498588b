// The end of a server under load: every client gets its reply or an error it can read, and nothing is left over.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

TEST(Drain, UnderLoadEveryStreamEndsWithAnErrorAndEveryBodyIsOne) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(1ms); };
  ApiBench bench({.model = {.scripts = std::move(scripts), .max_requests = 8, .max_queue = 64}});
  std::vector<std::unique_ptr<LoopbackClient>> clients;
  constexpr int kNumClients = 24;  // a third runs, the rest waits
  for (int i = 0; i < kNumClients; ++i) {
    clients.push_back(std::make_unique<LoopbackClient>(bench.server->port()));
    clients.back()->request("POST", kChat, chat_body("endless", i % 2 == 0 ? R"(,"stream":true)" : ""));
  }
  ASSERT_TRUE(eventually([&] {
    const engine::EngineStats stats = bench.model->engine->stats();
    return stats.num_running + stats.num_waiting == kNumClients;
  }));
  std::jthread draining([&] { bench.server->drain(300ms); });
  for (int i = 0; i < kNumClients; ++i) {
    const ClientResponse response = clients[static_cast<std::size_t>(i)]->response();
    EXPECT_NE(response.body.find("shutting down"), std::string::npos) << response.status << response.body;
    EXPECT_EQ(response.status, i % 2 == 0 ? 200 : 503);
  }
  draining.join();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_FALSE(LoopbackClient(bench.server->port()).exchange("GET", "/health", "").status == 200);
}

}  // namespace
}  // namespace deepinfer::server

// The whole server over loopback sockets with a scripted model, ready to be asked.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/json.h"
#include "loopback_client.h"
#include "scripted_model.h"
#include "server/api_server.h"

namespace deepinfer::server {

inline constexpr const char* kChat = "/v1/chat/completions";

struct ApiBenchOptions {
  ApiServerOptions server = {};
  ScriptedOptions model = {};
  std::shared_ptr<const ServedModel> served = {};  ///< instead of a scripted model
};

/// A server that is ready. `log` holds its access lines.
struct ApiBench {
  explicit ApiBench(ApiBenchOptions options = {})
      : model(options.served ? std::move(options.served) : scripted_model(std::move(options.model))) {
    options.server.http.port = 0;
    options.server.version = "0.1.0";
    options.server.commit = "abc";
    options.server.log = Log([this](LogLevel, std::string_view text) { EXPECT_TRUE(log.try_push(std::string(text))); });
    auto started = ApiServer::start(std::move(options.server));
    EXPECT_TRUE(started) << started.error().message;
    server = std::move(*started);
    server->serve(model);
  }

  ClientResponse post(const std::string& path, const std::string& body, const std::string& headers = "") const {
    return LoopbackClient(server->port()).exchange("POST", path, body, headers);
  }
  ClientResponse get(const std::string& path, const std::string& headers = "") const {
    return LoopbackClient(server->port()).exchange("GET", path, "", headers);
  }
  bool is_quiet() const {
    const engine::EngineStats stats = model->engine->stats();
    return stats.num_running == 0 && stats.num_waiting == 0 && stats.num_blocks_used == 0 && stats.num_slots_used == 0;
  }
  void expect_normal_service() const {
    const ClientResponse response = post(kChat, chat_body("hello"));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.body.find("Hello! How can I help you today?"), std::string::npos) << response.body;
  }

  BoundedQueue<std::string> log{4096};
  std::shared_ptr<const ServedModel> model;
  std::unique_ptr<ApiServer> server;
};

/// Data lines of a stream, in order.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = body.find('\n', at);
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return out;
}

/// A member of the only choice's delta, joined over all chunks.
inline std::string joined(const std::vector<std::string>& events, const std::string& member) {
  std::string out;
  for (const std::string& event : events) {
    const auto chunk = json::parse(event);
    const json::Value* const choices = chunk ? chunk->find("choices") : nullptr;
    if (choices == nullptr || choices->as_array()->empty()) {
      continue;
    }
    const json::Value* const value = choices->as_array()->front().find("delta")->find(member);
    out += value == nullptr || value->as_string() == nullptr ? "" : *value->as_string();
  }
  return out;
}

}  // namespace deepinfer::server

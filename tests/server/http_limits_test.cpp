// Limits of the transport: sizes, deadlines, connections, readers that take nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "http_bench.h"

namespace deepinfer::server {
namespace {

TEST(HttpLimits, HeadersPastTheLimitAreRefused) {
  HttpBench bench({.max_header_bytes = 1024});
  LoopbackClient client(bench.server->port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(5000, 'h') + "\r\n\r\n");
  EXPECT_EQ(client.response().status, 431);
}

TEST(HttpLimits, ABodyPastTheLimitIsRefusedBeforeItIsSent) {
  HttpBench bench({.max_body_bytes = 1000});
  LoopbackClient client(bench.server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
  EXPECT_EQ(client.response().status, 413);
  EXPECT_EQ(LoopbackClient(bench.server->port()).exchange("POST", "/", std::string(1000, 'x')).status, 200);
}

TEST(HttpLimits, AClientThatSendsATooLargeBodyAnywaySeesTheAnswer) {
  HttpBench bench({.max_body_bytes = 1000});
  for (const bool is_chunked : {false, true}) {
    LoopbackClient client(bench.server->port());
    const std::string body(8 << 20, 'x');
    client.send(is_chunked ? "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800000\r\n"
                           : "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n");
    EXPECT_TRUE(client.send(body));
    EXPECT_EQ(client.response().status, 413);
  }
}

TEST(HttpLimits, BodiesTogetherAreBounded) {
  HttpBench bench({.max_body_bytes = 1 << 20, .max_total_body_bytes = 100'000});
  LoopbackClient client(bench.server->port());
  EXPECT_EQ(client.exchange("POST", "/", std::string(300'000, 'x')).status, 503);
  EXPECT_EQ(LoopbackClient(bench.server->port()).exchange("POST", "/", std::string(50'000, 'x')).status, 200);
}

TEST(HttpLimits, ARefusalComesBeforeTheBody) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  client.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_EQ(client.response().status, 401);
  LoopbackClient other(bench.server->port());
  EXPECT_EQ(other.exchange("GET", "/refused").status, 401);
  EXPECT_EQ(other.exchange("GET", "/next").status, 200);
}

TEST(HttpLimits, SlowHeadersAreCutOff) {
  HttpBench bench({.header_timeout = 200ms});
  LoopbackClient client(bench.server->port());
  const auto begin = std::chrono::steady_clock::now();
  std::jthread drip([&client](const std::stop_token& stop) {
    client.send("GET / HTTP/1.1\r\n");
    for (int i = 0; i < 200 && !stop.stop_requested(); ++i) {
      client.send("x: y\r\n");
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_EQ(client.response().status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
}

TEST(HttpLimits, SlowBodiesAreCutOff) {
  HttpBench bench({.body_timeout = 200ms});
  LoopbackClient client(bench.server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
  std::jthread drip([&client](const std::stop_token& stop) {
    for (int i = 0; i < 200 && !stop.stop_requested(); ++i) {
      client.send("z");
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_EQ(client.response().status, 408);
}

TEST(HttpLimits, ABodyThatWasAskedForHasADeadlineToo) {
  HttpBench bench({.body_timeout = 200ms});
  LoopbackClient client(bench.server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("100 Continue\r\n\r\n"));
  EXPECT_TRUE(client.receive_until("408"));
}

TEST(HttpLimits, AnIdleConnectionIsClosed) {
  HttpBench bench({.idle_timeout = 100ms});
  LoopbackClient fresh(bench.server->port());
  EXPECT_TRUE(fresh.is_closed_by_peer());
  LoopbackClient used(bench.server->port());
  EXPECT_EQ(used.exchange("GET", "/").status, 200);
  EXPECT_TRUE(used.is_closed_by_peer());
}

TEST(HttpLimits, ConnectionsPastTheLimitAreTurnedAway) {
  HttpBench bench({.max_connections = 2});
  LoopbackClient first(bench.server->port());
  auto second = std::make_unique<LoopbackClient>(bench.server->port());
  EXPECT_EQ(first.exchange("GET", "/").status, 200);
  EXPECT_EQ(second->exchange("GET", "/").status, 200);
  EXPECT_EQ(LoopbackClient(bench.server->port()).response().status, 503);
  second.reset();
  int status = 0;
  for (int i = 0; i < 100 && status != 200; ++i) {
    std::this_thread::sleep_for(10ms);
    status = LoopbackClient(bench.server->port()).exchange("GET", "/").status;
  }
  EXPECT_EQ(status, 200);
}

// Both buffers of the system are set, so that what a stream can get rid of does not depend on the machine.
constexpr int kSystemBuffer = 8192;

TEST(HttpLimits, AReaderThatTakesNothingIsAbandonedAtTheLimit) {
  constexpr std::size_t kLimit = 20'000;
  constexpr std::size_t kPiece = 1'000;
  HttpBench bench({.max_unsent_bytes = kLimit, .send_buffer_bytes = kSystemBuffer});
  LoopbackClient client(bench.server->port(), kSystemBuffer);
  client.request("GET", "/stream");
  const std::weak_ptr<Exchange> weak = bench.held.pop(kPatience).value();
  const auto gate = weak.lock()->gate();
  std::atomic<std::size_t> written = 0;
  for (int i = 0; i < 5000; ++i) {
    gate->post([weak, &written] {
      const auto exchange = weak.lock();
      if (exchange && !exchange->is_abandoned()) {
        exchange->write(std::string(kPiece, 'x'));
        written += kPiece;
      }
    });
  }
  EXPECT_EQ(bench.abandonments.pop(kPatience), Abandonment::reader_too_slow);
  EXPECT_GE(written, kLimit);
  // What waits, as much again that is being sent, and one segment of at most 64 KiB beside each of the system's buffers.
  EXPECT_LT(written, 2 * kLimit + 2 * (2 * kSystemBuffer + (64 << 10)));
  ASSERT_TRUE(bench.records.pop(kPatience));
}

TEST(HttpLimits, AReaderThatTakesNothingIsCutOffInTime) {
  HttpBench bench({.max_unsent_bytes = 4 << 20, .idle_timeout = 200ms, .send_buffer_bytes = kSystemBuffer});
  LoopbackClient client(bench.server->port(), kSystemBuffer);
  client.request("GET", "/stream");
  bench.with_held([](Exchange& exchange) { exchange.write(std::string(1 << 20, 'x')); });
  EXPECT_EQ(bench.abandonments.pop(kPatience), Abandonment::client_gone);
}

TEST(HttpLimits, AReplyThatTakesTooLongIsAbandonedButMayStillSayWhy) {
  HttpBench bench({.reply_timeout = 50ms});
  LoopbackClient client(bench.server->port());
  client.request("GET", "/hold");
  const std::weak_ptr<Exchange> weak = bench.held.pop(kPatience).value();
  ASSERT_EQ(bench.abandonments.pop(kPatience), Abandonment::out_of_time);
  weak.lock()->gate()->post([weak] { weak.lock()->respond({.status = 504, .body = "late"}); });
  EXPECT_EQ(client.response().status, 504);
  EXPECT_EQ(client.exchange("GET", "/next").status, 200);  // a deadline is one request's, not the connection's
}

}  // namespace
}  // namespace deepinfer::server

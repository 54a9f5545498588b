// The transport alone, over loopback sockets, with a handler that echoes, holds or streams.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "loopback_client.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 10s;

/// GET /echo-less paths: "/hold" is answered by the test, "/stream" begins a stream, "/refused" is refused before its body.
class Bench {
 public:
  explicit Bench(HttpOptions options = {}) {
    options.port = 0;
    HttpHandler handler{
        .admit = [](const RequestHead& head) -> std::optional<Response> {
          return head.path == "/refused" ? std::optional(Response{.status = 401, .body = "no"}) : std::nullopt;
        },
        .handle = [this](Request request, const std::shared_ptr<Exchange>& exchange) { handle(std::move(request), exchange); },
        .refuse = [](int status, std::string_view, const std::string& message) { return Response{.status = status, .body = message}; },
        .finished = [this](const AccessRecord& record) { EXPECT_TRUE(records.try_push(record)); },
    };
    auto started = HttpServer::start(options, std::move(handler));
    EXPECT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }

  void handle(Request request, const std::shared_ptr<Exchange>& exchange) {
    if (request.head.path == "/hold" || request.head.path == "/stream") {
      exchange->on_abandoned([this](Abandonment why) { EXPECT_TRUE(abandonments.try_push(why)); });
      if (request.head.path == "/stream") {
        exchange->begin_stream({.content_type = "text/event-stream"});
      }
      EXPECT_TRUE(held.try_push(exchange));
      return;
    }
    exchange->respond({.content_type = "text/plain", .body = request.head.method + " " + request.head.path + " " + request.body});
  }

  /// Runs `use` on the exchange of the oldest request that is held.
  std::shared_ptr<TaskGate> with_held(std::function<void(Exchange&)> use) {
    std::weak_ptr<Exchange> weak = held.pop(kPatience).value();
    auto gate = weak.lock()->gate();
    gate->post([weak, use = std::move(use)] {
      if (const auto exchange = weak.lock()) {
        use(*exchange);
      }
    });
    return gate;
  }

  BoundedQueue<std::weak_ptr<Exchange>> held{64};
  BoundedQueue<Abandonment> abandonments{64};
  BoundedQueue<AccessRecord> records{4096};
  std::unique_ptr<HttpServer> server;
};

TEST(HttpServer, AConnectionServesManyRequests) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  for (int i = 0; i < 3; ++i) {
    const ClientResponse response = client.exchange("POST", "/echo?q=1", "body " + std::to_string(i), "x-request-id: mine\r\n");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /echo body " + std::to_string(i));
    EXPECT_EQ(response.header("x-request-id"), "mine");
    EXPECT_EQ(response.header("connection"), "keep-alive");
  }
  EXPECT_EQ(bench.server->num_connections(), 1);
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.send(
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nPOST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_EQ(client.response().body, "GET /1 ");
  EXPECT_EQ(client.response().body, "GET /2 ");
  EXPECT_EQ(client.response().body, "POST /3 ab");
}

TEST(HttpServer, ARequestPipelinedBehindAHeldOneIsAnsweredAfterIt) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.request("GET", "/hold");
  const auto pipelined_sent = [&client] { return client.request("GET", "/next"); };
  ASSERT_TRUE(pipelined_sent());
  bench.with_held([](Exchange& exchange) { exchange.respond({.body = "first"}); });
  EXPECT_EQ(client.response().body, "first");
  EXPECT_EQ(client.response().body, "GET /next ");
}

TEST(HttpServer, AChunkedBodyIsJoined) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_EQ(client.response().body, "POST /c abcde");
  EXPECT_EQ(client.exchange("GET", "/next").status, 200);
}

TEST(HttpServer, ALargeBodyArrivesWhole) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  const std::string body(3 << 20, 'z');
  EXPECT_EQ(client.exchange("POST", "/big", body).body, "POST /big " + body);
}

TEST(HttpServer, ABodyIsAskedForWhenTheClientWaits) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("100 Continue\r\n\r\n"));
  client.send("ok");
  ASSERT_TRUE(client.receive_until("POST /e ok"));
}

TEST(HttpServer, HeadGetsTheHeadersOfGetWithoutABody) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  const ClientResponse response = client.exchange("HEAD", "/h");
  EXPECT_EQ(response.header("content-length"), std::to_string(std::string("HEAD /h ").size()));
  EXPECT_EQ(client.exchange("GET", "/next").body, "GET /next ");
}

TEST(HttpServer, AnOldClientGetsAnswersThatEndWithTheConnection) {
  Bench bench;
  LoopbackClient plain(bench.server->port());
  plain.send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(plain.response().header("connection"), "close");
  EXPECT_TRUE(plain.is_closed_by_peer());

  LoopbackClient streaming(bench.server->port());
  streaming.send("GET /stream HTTP/1.0\r\n\r\n");
  bench.with_held([](Exchange& exchange) {
    exchange.write("data: x\n\n");
    exchange.end();
  });
  const ClientResponse response = streaming.response();
  EXPECT_EQ(response.header("transfer-encoding"), "");
  EXPECT_EQ(response.body, "data: x\n\n");
}

TEST(HttpServer, MalformedRequestsGetOneAnswerAndTheConnectionEnds) {
  Bench bench;
  const std::vector<std::string> requests = {
      "nonsense\r\n\r\n",
      "GET  /two-blanks HTTP/1.1\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "GET / HTTP/1.1\r\nno colon\r\n\r\n",
      "GET / HTTP/1.1\r\nbad name: x\r\n\r\n",
      "G\x01T / HTTP/1.1\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\na",
      "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
      "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
      "GET http:// HTTP/1.1 extra\r\n\r\n",
      std::string("GET /\0 HTTP/1.1\r\n\r\n", 19),
      "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
  };
  for (const std::string& bytes : requests) {
    LoopbackClient client(bench.server->port());
    client.send(bytes);
    const ClientResponse response = client.response();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_NE(response.body, "") << bytes;
    EXPECT_TRUE(client.is_closed_by_peer()) << bytes;
    EXPECT_EQ(LoopbackClient(bench.server->port()).exchange("GET", "/next").status, 200) << bytes;
  }
}

TEST(HttpServer, HeadersPastTheLimitAreRefused) {
  Bench bench({.max_header_bytes = 1024});
  LoopbackClient client(bench.server->port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(5000, 'h') + "\r\n\r\n");
  EXPECT_EQ(client.response().status, 431);
}

TEST(HttpServer, ABodyPastTheLimitIsRefusedBeforeItIsSent) {
  Bench bench({.max_body_bytes = 1000});
  LoopbackClient client(bench.server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
  EXPECT_EQ(client.response().status, 413);
  EXPECT_EQ(LoopbackClient(bench.server->port()).exchange("POST", "/", std::string(1000, 'x')).status, 200);
}

TEST(HttpServer, AClientThatSendsATooLargeBodyAnywaySeesTheAnswer) {
  Bench bench({.max_body_bytes = 1000});
  for (const bool is_chunked : {false, true}) {
    LoopbackClient client(bench.server->port());
    const std::string body(8 << 20, 'x');
    client.send(is_chunked ? "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800000\r\n"
                           : "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n");
    EXPECT_TRUE(client.send(body));
    EXPECT_EQ(client.response().status, 413);
  }
}

TEST(HttpServer, BodiesTogetherAreBounded) {
  Bench bench({.max_body_bytes = 1 << 20, .max_total_body_bytes = 100'000});
  LoopbackClient client(bench.server->port());
  EXPECT_EQ(client.exchange("POST", "/", std::string(300'000, 'x')).status, 503);
  EXPECT_EQ(LoopbackClient(bench.server->port()).exchange("POST", "/", std::string(50'000, 'x')).status, 200);
}

TEST(HttpServer, ARefusalComesBeforeTheBody) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_EQ(client.response().status, 401);
  LoopbackClient other(bench.server->port());
  EXPECT_EQ(other.exchange("GET", "/refused").status, 401);
  EXPECT_EQ(other.exchange("GET", "/next").status, 200);
}

TEST(HttpServer, SlowHeadersAreCutOff) {
  Bench bench({.header_timeout = 200ms});
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

TEST(HttpServer, SlowBodiesAreCutOff) {
  Bench bench({.body_timeout = 200ms});
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

TEST(HttpServer, ABodyThatWasAskedForHasADeadlineToo) {
  Bench bench({.body_timeout = 200ms});
  LoopbackClient client(bench.server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("100 Continue\r\n\r\n"));
  EXPECT_TRUE(client.receive_until("408"));
}

TEST(HttpServer, AnIdleConnectionIsClosed) {
  Bench bench({.idle_timeout = 100ms});
  LoopbackClient fresh(bench.server->port());
  EXPECT_TRUE(fresh.is_closed_by_peer());
  LoopbackClient used(bench.server->port());
  EXPECT_EQ(used.exchange("GET", "/").status, 200);
  EXPECT_TRUE(used.is_closed_by_peer());
}

TEST(HttpServer, ConnectionsPastTheLimitAreTurnedAway) {
  Bench bench({.max_connections = 2});
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

TEST(HttpServer, AStreamGoesOutPieceByPieceAndTheConnectionLivesOn) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.request("GET", "/stream");
  ASSERT_TRUE(client.receive_until("\r\n\r\n"));  // before any data
  const auto gate = bench.with_held([](Exchange& exchange) { exchange.write("data: 1\n\n"); });
  ASSERT_TRUE(client.receive_until("data: 1\n\n"));
  Bench* const raw = &bench;
  static_cast<void>(raw);
  gate->post([] {});
  EXPECT_TRUE(bench.abandonments.drain().empty());
}

TEST(HttpServer, AStreamEndsWithTheLastChunk) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.request("GET", "/stream");
  bench.with_held([](Exchange& exchange) {
    exchange.write("data: 1\n\n");
    exchange.write("data: 2\n\n");
    exchange.end();
  });
  EXPECT_EQ(client.response().body, "data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(client.exchange("GET", "/next").body, "GET /next ");
}

TEST(HttpServer, AQuietStreamGetsKeepAliveComments) {
  Bench bench({.keep_alive_interval = 50ms});
  LoopbackClient client(bench.server->port());
  client.request("GET", "/stream");
  EXPECT_TRUE(client.receive_until(": keep-alive\n\n"));
}

TEST(HttpServer, AClientThatLeavesIsNoticedWhileItsReplyIsAwaited) {
  Bench bench;
  for (const char* path : {"/hold", "/stream"}) {
    auto client = std::make_unique<LoopbackClient>(bench.server->port());
    client->request("GET", path);
    const auto exchange = bench.held.pop(kPatience);
    ASSERT_TRUE(exchange);
    client.reset();
    EXPECT_EQ(bench.abandonments.pop(kPatience), Abandonment::client_gone) << path;
    const auto record = bench.records.pop(kPatience);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->abandonment, Abandonment::client_gone);
  }
}

TEST(HttpServer, AReaderThatTakesNothingIsAbandonedAtTheLimit) {
  Bench bench({.max_unsent_bytes = 100'000});
  LoopbackClient client(bench.server->port());
  client.shrink_receive_buffer();
  client.request("GET", "/stream");
  const std::weak_ptr<Exchange> weak = bench.held.pop(kPatience).value();
  const auto gate = weak.lock()->gate();
  std::atomic<std::size_t> written = 0;
  for (int i = 0; i < 2000; ++i) {
    gate->post([weak, &written] {
      const auto exchange = weak.lock();
      if (exchange && !exchange->is_abandoned()) {
        exchange->write(std::string(10'000, 'x'));
        written += 10'000;
      }
    });
  }
  EXPECT_EQ(bench.abandonments.pop(kPatience), Abandonment::reader_too_slow);
  EXPECT_LT(written, 10'000'000U);  // the kernel's buffers and ours, not all of the 20 MB
  ASSERT_TRUE(bench.records.pop(kPatience));
}

TEST(HttpServer, AReaderThatTakesNothingIsCutOffInTime) {
  Bench bench({.max_unsent_bytes = 64 << 20, .idle_timeout = 200ms});
  LoopbackClient client(bench.server->port());
  client.shrink_receive_buffer();
  client.request("GET", "/stream");
  bench.with_held([](Exchange& exchange) { exchange.write(std::string(32 << 20, 'x')); });
  EXPECT_EQ(bench.abandonments.pop(kPatience), Abandonment::client_gone);
}

TEST(HttpServer, DrainingClosesIdleConnectionsAndLetsBusyOnesFinish) {
  Bench bench;
  LoopbackClient idle(bench.server->port());
  EXPECT_EQ(idle.exchange("GET", "/").status, 200);
  LoopbackClient busy(bench.server->port());
  busy.request("GET", "/hold");
  const std::weak_ptr<Exchange> weak = bench.held.pop(kPatience).value();
  bench.server->begin_drain();
  EXPECT_TRUE(idle.is_closed_by_peer());
  EXPECT_FALSE(bench.server->wait_until_idle(50ms));
  weak.lock()->gate()->post([weak] { weak.lock()->respond({.body = "done"}); });
  const ClientResponse response = busy.response();
  EXPECT_EQ(response.body, "done");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_TRUE(bench.server->wait_until_idle(kPatience));
}

TEST(HttpServer, AbandoningAllLetsStreamsSayGoodbye) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.request("GET", "/stream");
  bench.with_held([](Exchange& exchange) {
    exchange.write("data: 1\n\n");
    Exchange* const raw = &exchange;
    exchange.on_abandoned([raw](Abandonment) {
      raw->write("data: bye\n\n");
      raw->end();
    });
  });
  ASSERT_TRUE(client.receive_until("data: 1\n\n"));
  bench.server->begin_drain();
  bench.server->abandon_all();
  EXPECT_TRUE(client.receive_until("data: bye\n\n"));
  EXPECT_TRUE(bench.server->wait_until_idle(kPatience));
}

TEST(HttpServer, DestroyingABusyServerDropsItsConnections) {
  auto bench = std::make_unique<Bench>();
  LoopbackClient client(bench->server->port());
  client.request("GET", "/stream");
  const std::weak_ptr<Exchange> weak = bench->held.pop(kPatience).value();
  const auto gate = weak.lock()->gate();
  std::jthread poster([&gate, weak](const std::stop_token& stop) {
    for (int i = 0; i < 100'000 && !stop.stop_requested(); ++i) {
      gate->post([weak] {
        if (const auto exchange = weak.lock()) {
          exchange->write("x");
        }
      });
    }
  });
  bench->server.reset();
  EXPECT_TRUE(weak.expired());
}

TEST(HttpServer, APortInUseIsAnErrorWithItsNumber) {
  Bench bench;
  const auto second = HttpServer::start({.port = bench.server->port()}, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::io);
  EXPECT_NE(second.error().message.find(std::to_string(bench.server->port())), std::string::npos);
}

TEST(HttpServer, AnAddressOfAnotherMachineIsAnError) {
  EXPECT_FALSE(HttpServer::start({.address = "no.such.host.invalid", .port = 0}, {}));
  EXPECT_FALSE(HttpServer::start({.address = "203.0.113.7", .port = 0}, {}));
}

TEST(HttpServer, ManyClientsAtOnceAreAllAnswered) {
  Bench bench({.num_threads = 4});
  std::vector<std::jthread> clients;
  std::atomic<int> num_right = 0;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&, c] {
      LoopbackClient client(bench.server->port());
      for (int i = 0; i < 20; ++i) {
        const std::string body = std::to_string(c) + "/" + std::to_string(i);
        num_right += client.exchange("POST", "/echo", body).body == "POST /echo " + body ? 1 : 0;
      }
    });
  }
  clients.clear();
  EXPECT_EQ(num_right, 16 * 20);
}

}  // namespace
}  // namespace deepinfer::server

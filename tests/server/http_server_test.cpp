// The transport alone, over loopback sockets: requests, replies, streams, the end of a server.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "http_bench.h"

namespace deepinfer::server {
namespace {

TEST(HttpServer, AConnectionServesManyRequests) {
  HttpBench bench;
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
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  client.send(
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nPOST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_EQ(client.response().body, "GET /1 ");
  EXPECT_EQ(client.response().body, "GET /2 ");
  EXPECT_EQ(client.response().body, "POST /3 ab");
}

TEST(HttpServer, ARequestPipelinedBehindAHeldOneIsAnsweredAfterIt) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  client.request("GET", "/hold");
  const auto pipelined_sent = [&client] { return client.request("GET", "/next"); };
  ASSERT_TRUE(pipelined_sent());
  bench.with_held([](Exchange& exchange) { exchange.respond({.body = "first"}); });
  EXPECT_EQ(client.response().body, "first");
  EXPECT_EQ(client.response().body, "GET /next ");
}

TEST(HttpServer, AChunkedBodyIsJoined) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_EQ(client.response().body, "POST /c abcde");
  EXPECT_EQ(client.exchange("GET", "/next").status, 200);
}

TEST(HttpServer, ALargeBodyArrivesWhole) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  const std::string body(3 << 20, 'z');
  EXPECT_EQ(client.exchange("POST", "/big", body).body, "POST /big " + body);
}

TEST(HttpServer, ABodyIsAskedForWhenTheClientWaits) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("100 Continue\r\n\r\n"));
  client.send("ok");
  ASSERT_TRUE(client.receive_until("POST /e ok"));
}

TEST(HttpServer, HeadGetsTheHeadersOfGetWithoutABody) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  const ClientResponse response = client.exchange("HEAD", "/h");
  EXPECT_EQ(response.header("content-length"), std::to_string(std::string("HEAD /h ").size()));
  EXPECT_EQ(client.exchange("GET", "/next").body, "GET /next ");
}

TEST(HttpServer, AnOldClientGetsAnswersThatEndWithTheConnection) {
  HttpBench bench;
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
  HttpBench bench;
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

TEST(HttpServer, AStreamGoesOutPieceByPieceAndTheConnectionLivesOn) {
  HttpBench bench;
  LoopbackClient client(bench.server->port());
  client.request("GET", "/stream");
  ASSERT_TRUE(client.receive_until("\r\n\r\n"));  // before any data
  const auto gate = bench.with_held([](Exchange& exchange) { exchange.write("data: 1\n\n"); });
  ASSERT_TRUE(client.receive_until("data: 1\n\n"));
  HttpBench* const raw = &bench;
  static_cast<void>(raw);
  gate->post([] {});
  EXPECT_TRUE(bench.abandonments.drain().empty());
}

TEST(HttpServer, AStreamEndsWithTheLastChunk) {
  HttpBench bench;
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
  HttpBench bench({.keep_alive_interval = 50ms});
  LoopbackClient client(bench.server->port());
  client.request("GET", "/stream");
  EXPECT_TRUE(client.receive_until(": keep-alive\n\n"));
}

TEST(HttpServer, AClientThatLeavesIsNoticedWhileItsReplyIsAwaited) {
  HttpBench bench;
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

TEST(HttpServer, DrainingClosesIdleConnectionsAndLetsBusyOnesFinish) {
  HttpBench bench;
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
  HttpBench bench;
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
  auto bench = std::make_unique<HttpBench>();
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
  HttpBench bench;
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
  HttpBench bench({.num_threads = 4});
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

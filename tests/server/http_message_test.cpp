#include "server/http_message.h"

#include <gtest/gtest.h>

namespace deepinfer::server {
namespace {

TEST(HttpMessage, APathIsTheTargetWithoutQueryAndWithEscapesDecoded) {
  EXPECT_EQ(path_of_target("/v1/models?x=1#y"), "/v1/models");
  EXPECT_EQ(path_of_target("/v1/models/a%2Fb%20c"), "/v1/models/a/b c");
  EXPECT_EQ(path_of_target("http://host:80/health"), "/health");
  EXPECT_EQ(path_of_target("http://host"), "/");
}

TEST(HttpMessage, ATargetThatIsNoPathIsRefused) {
  EXPECT_EQ(path_of_target("*"), std::nullopt);
  EXPECT_EQ(path_of_target("host:443"), std::nullopt);
  EXPECT_EQ(path_of_target("/a%2"), std::nullopt);
  EXPECT_EQ(path_of_target("/a%zz"), std::nullopt);
  EXPECT_EQ(path_of_target("/a%00b"), std::nullopt);
  EXPECT_EQ(path_of_target(""), std::nullopt);
}

TEST(HttpMessage, ASaneRequestIdIsKeptAndAnyOtherReplaced) {
  EXPECT_EQ(sane_request_id("Client-1_a.b"), "Client-1_a.b");
  EXPECT_EQ(sane_request_id("").size(), 32U);
  EXPECT_EQ(sane_request_id("a b").size(), 32U);
  EXPECT_EQ(sane_request_id("a\r\nSet-Cookie: x").find('\n'), std::string::npos);
  EXPECT_EQ(sane_request_id(std::string(65, 'a')).size(), 32U);
  EXPECT_NE(sane_request_id(""), sane_request_id(""));
}

TEST(HttpMessage, AResponseHeadNamesLengthConnectionAndRequestId) {
  const Response response{.status = 404, .body = "{}", .headers = {{"Allow", "GET"}}};
  EXPECT_EQ(response_head(response, "r1", {.keep_alive = false}),
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\nx-request-id: r1\r\n"
            "Allow: GET\r\n\r\n");
}

TEST(HttpMessage, AChunkedHeadHasNoLength) {
  const std::string head = response_head({.content_type = "text/event-stream"}, "r", {.framing = Delivery::Framing::chunked});
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(head.find("Content-Length"), std::string::npos);
}

TEST(HttpMessage, AChunkHasItsSizeInHexadecimal) {
  std::string out;
  append_chunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(HttpMessage, AnEventIsNameAndDataLinesAndAnEmptyLine) {
  std::string out;
  append_event(out, "", "{\"a\":1}");
  append_event(out, "ping", "");
  append_event(out, "x", "two\nlines");
  EXPECT_EQ(out, "data: {\"a\":1}\n\nevent: ping\ndata: \n\nevent: x\ndata: two\ndata: lines\n\n");
}

}  // namespace
}  // namespace deepinfer::server

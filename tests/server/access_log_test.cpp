#include "server/access_log.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace deepinfer::server {
namespace {

AccessRecord record() {
  AccessRecord out;
  out.head.request_id = "r1";
  out.head.remote = "127.0.0.1";
  out.head.method = "POST";
  out.head.path = "/v1/messages";
  out.status = 200;
  out.num_body_bytes = 12;
  out.duration = std::chrono::microseconds(1260);
  out.details = {{"api", "messages"}, {"prompt", 5}};
  return out;
}

TEST(AccessLog, ALineNamesRequestStatusTimeAndDetails) {
  EXPECT_EQ(access_line(record(), LogFormat::text),
            R"(id=r1 remote=127.0.0.1 "POST /v1/messages" status=200 bytes=12 ms=1.3 api=messages prompt=5)");
}

TEST(AccessLog, WhateverAClientSentALineStaysALine) {
  AccessRecord bad = record();
  bad.head.path = "/a\"b\xFF";
  bad.details = {{"refused", "two\nlines \"quoted\""}};
  const std::string line = access_line(bad, LogFormat::text);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NE(line.find(R"(refused="two\nlines \"quoted\"")"), std::string::npos) << line;
}

TEST(AccessLog, ALongPathIsCut) {
  AccessRecord bad = record();
  bad.head.path = std::string(100'000, 'x');
  EXPECT_LT(access_line(bad, LogFormat::text).size(), 500U);
}

TEST(AccessLog, TheJsonFormIsOneObject) {
  AccessRecord gone = record();
  gone.abandonment = Abandonment::client_gone;
  const auto parsed = json::parse(access_line(gone, LogFormat::json));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed->find("ended")->as_string(), "client gone");
  EXPECT_EQ(parsed->find("prompt")->as_number()->as_int64(), 5);
}

}  // namespace
}  // namespace deepinfer::server

#include "server/routes.h"

#include <gtest/gtest.h>

namespace deepinfer::server {
namespace {

TEST(Routes, APathAndItsMethodGiveTheEndpoint) {
  EXPECT_EQ(find_route("POST", "/v1/chat/completions").route->endpoint, Endpoint::chat_completions);
  EXPECT_EQ(find_route("POST", "/v1/messages").route->endpoint, Endpoint::messages);
  EXPECT_EQ(find_route("POST", "/v1/messages/count_tokens").route->endpoint, Endpoint::count_tokens);
  EXPECT_EQ(find_route("GET", "/health").route->endpoint, Endpoint::health);
  EXPECT_EQ(find_route("GET", "/").route->endpoint, Endpoint::playground);
}

TEST(Routes, AModelPathCarriesItsId) {
  const Routing routing = find_route("GET", "/v1/models/org/name");
  EXPECT_EQ(routing.route->endpoint, Endpoint::model);
  EXPECT_EQ(routing.route->parameter, "org/name");
}

TEST(Routes, AResponsePathIsReadDeletedAndCancelled) {
  EXPECT_EQ(find_route("POST", "/v1/responses").route->endpoint, Endpoint::responses);
  EXPECT_EQ(find_route("GET", "/v1/responses/resp_1").route->endpoint, Endpoint::stored_response);
  EXPECT_EQ(find_route("DELETE", "/v1/responses/resp_1").route->endpoint, Endpoint::delete_response);
  const Routing cancel = find_route("POST", "/v1/responses/resp_1/cancel");
  EXPECT_EQ(cancel.route->endpoint, Endpoint::cancel_response);
  EXPECT_EQ(cancel.route->parameter, "resp_1");
  EXPECT_EQ(find_route("POST", "/v1/responses/resp_1").allow, "GET, DELETE");
  EXPECT_EQ(find_route("GET", "/v1/responses/resp_1/cancel").allow, "POST");
  EXPECT_FALSE(find_route("POST", "/v1/responses//cancel").route);
}

TEST(Routes, HeadIsAllowedWhereGetIs) {
  EXPECT_TRUE(find_route("HEAD", "/health").route);
  EXPECT_FALSE(find_route("HEAD", "/v1/chat/completions").route);
}

TEST(Routes, AWrongMethodNamesTheRightOne) {
  const Routing routing = find_route("GET", "/v1/chat/completions");
  EXPECT_FALSE(routing.route);
  EXPECT_EQ(routing.allow, "POST");
  EXPECT_EQ(find_route("DELETE", "/v1/models/x").allow, "GET");
}

TEST(Routes, AnUnknownPathAllowsNothing) {
  for (const auto* path : {"/v1", "/v1/chat/completions/", "/V1/models", "/v1/models/", "", "/health/x"}) {
    EXPECT_FALSE(find_route("GET", path).route) << path;
    EXPECT_EQ(find_route("GET", path).allow, "") << path;
  }
}

TEST(Routes, OnlyHealthVersionAndPlaygroundAreOpenToAll) {
  EXPECT_TRUE(is_public(Endpoint::health));
  EXPECT_TRUE(is_public(Endpoint::version));
  EXPECT_TRUE(is_public(Endpoint::playground));
  EXPECT_FALSE(is_public(Endpoint::metrics));
  EXPECT_FALSE(is_public(Endpoint::abort));
  EXPECT_FALSE(is_public(Endpoint::models));
  EXPECT_FALSE(is_public(Endpoint::render));
}

}  // namespace
}  // namespace deepinfer::server

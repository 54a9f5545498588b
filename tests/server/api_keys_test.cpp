#include "server/api_keys.h"

#include <gtest/gtest.h>

namespace deepinfer::server {
namespace {

RequestHead head_with(std::string name, std::string value) { return {.headers = {{std::move(name), std::move(value)}}}; }

TEST(ApiKeys, EveryLineIsAKeyButCommentsAndEmptyOnes) {
  const auto keys = ApiKeys::parse("# team\n  first \r\n\nsecond");
  ASSERT_TRUE(keys);
  EXPECT_TRUE(keys->accept(head_with("authorization", "Bearer first")));
  EXPECT_TRUE(keys->accept(head_with("authorization", "bearer  second")));
  EXPECT_TRUE(keys->accept(head_with("x-api-key", "second")));
}

TEST(ApiKeys, NothingButAKeyIsAccepted) {
  const auto keys = ApiKeys::parse("secret\n");
  ASSERT_TRUE(keys);
  EXPECT_FALSE(keys->accept({}));
  for (const char* wrong :
       {"Bearer ", "Bearer secre", "Bearer secrets", "Bearer secretsecret", "secret", "Basic secret", "Bearer\tsecret"}) {
    EXPECT_FALSE(keys->accept(head_with("authorization", wrong))) << wrong;
  }
  EXPECT_FALSE(keys->accept(head_with("x-api-key", "")));
  EXPECT_FALSE(keys->accept(head_with("x-api-key", "# team")));
}

TEST(ApiKeys, AFileWithoutKeysIsAnError) {
  EXPECT_FALSE(ApiKeys::parse("\n# nothing\n"));
  EXPECT_EQ(ApiKeys::load("/no/such/file").error().kind, ErrorKind::not_found);
}

}  // namespace
}  // namespace deepinfer::server

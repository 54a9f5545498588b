#include "server/response_store.h"

#include <gtest/gtest.h>

namespace deepinfer::server {
namespace {

StoredResponse response(const std::string& owner, std::size_t size = 10) {
  return {.owner = owner, .body = std::string(size, 'b'), .items = "[]"};
}

TEST(ResponseStore, AResponseIsFoundByItsOwnerOnly) {
  ResponseStore store;
  store.keep("r1", response("anna"));
  ASSERT_NE(store.find("anna", "r1"), nullptr);
  EXPECT_EQ(store.find("bert", "r1"), nullptr);
  EXPECT_FALSE(store.erase("bert", "r1"));
  EXPECT_TRUE(store.erase("anna", "r1"));
  EXPECT_EQ(store.find("anna", "r1"), nullptr);
  EXPECT_EQ(store.num_bytes(), 0U);
}

TEST(ResponseStore, TheLongestUnusedGoesFirst) {
  ResponseStore store({.max_responses = 2, .max_bytes = 1 << 20});
  store.keep("r1", response(""));
  store.keep("r2", response(""));
  ASSERT_NE(store.find("", "r1"), nullptr);  // used
  store.keep("r3", response(""));
  EXPECT_NE(store.find("", "r1"), nullptr);
  EXPECT_EQ(store.find("", "r2"), nullptr);
  EXPECT_NE(store.find("", "r3"), nullptr);
}

TEST(ResponseStore, BytesAreBounded) {
  ResponseStore store({.max_responses = 1000, .max_bytes = 10'000});
  for (int i = 0; i < 100; ++i) {
    store.keep("r" + std::to_string(i), response("", 1000));
    EXPECT_LE(store.num_bytes(), 10'000U);
  }
  EXPECT_GT(store.num_responses(), 5U);
  store.keep("huge", response("", 10'000));
  EXPECT_EQ(store.find("", "huge"), nullptr);
  EXPECT_GT(store.num_responses(), 5U);  // nothing made room for what is not kept
}

TEST(ResponseStore, AFoundResponseOutlivesItsPlace) {
  ResponseStore store({.max_responses = 1, .max_bytes = 1 << 20});
  store.keep("r1", response("", 3));
  const auto found = store.find("", "r1");
  store.keep("r2", response(""));
  EXPECT_EQ(found->body, "bbb");
}

TEST(ResponseStore, WithoutRoomNothingIsKept) {
  ResponseStore store({.max_responses = 0, .max_bytes = 1 << 20});
  store.keep("r1", response(""));
  EXPECT_EQ(store.num_responses(), 0U);
}

}  // namespace
}  // namespace deepinfer::server

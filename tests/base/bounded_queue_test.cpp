#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace deepinfer {
namespace {

TEST(BoundedQueue, RefusesWhenFullOrClosed) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.drain(), (std::vector<int>{1, 2}));
  queue.close();
  EXPECT_FALSE(queue.try_push(4));
  EXPECT_EQ(queue.pop(Duration::zero()), std::nullopt);
}

TEST(BoundedQueue, HandsEveryItemToOneConsumer) {
  BoundedQueue<int> queue(8);
  constexpr int kItems = 10000;
  std::jthread producer([&queue] {
    for (int i = 0; i < kItems;) {
      i += queue.try_push(i) ? 1 : 0;
    }
    queue.close();
  });
  for (int expected = 0; expected < kItems; ++expected) {
    EXPECT_EQ(queue.pop(std::chrono::seconds(10)), expected);
  }
  EXPECT_EQ(queue.pop(std::chrono::seconds(10)), std::nullopt);
}

}  // namespace
}  // namespace deepinfer

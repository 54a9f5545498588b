#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <utility>

namespace deepinfer {
namespace {

TEST(Shape, KnowsItsElementsAndText) {
  const Shape shape{24, 20480};
  EXPECT_EQ(shape.num_elements(), 24 * 20480);
  EXPECT_EQ(shape.to_string(), "[24, 20480]");
  EXPECT_EQ(Shape{}.num_elements(), 1);
  EXPECT_EQ(Shape{}.to_string(), "[]");
  EXPECT_NE(shape, (Shape{24, 20480, 1}));
  Shape full{1, 2, 3, 4};
  EXPECT_FALSE(full.append(5));
}

TEST(Buffer, ReleasesOnceWhereverItMoves) {
  static int released = 0;
  released = 0;
  int storage = 7;
  {
    Buffer first(&storage, sizeof(storage), [](void*, std::size_t) { ++released; });
    Buffer second = std::move(first);
    EXPECT_EQ(first.size_bytes(), 0U);
    EXPECT_EQ(*second.as<int>(), 7);
    EXPECT_EQ(second.size_bytes(), sizeof(int));
  }
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace deepinfer

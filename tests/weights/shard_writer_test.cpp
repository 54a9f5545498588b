#include "weights/shard_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/temp_directory.h"

namespace deepinfer::weights {
namespace {

std::vector<TensorDescription> some_tensors() {
  return {{.name = "a.weight", .dtype = DType::f8_e4m3, .shape = {3, 5}},
          {.name = "a.scale", .dtype = DType::f8_e8m0, .shape = {1, 1}},
          {.name = "b", .dtype = DType::f32, .shape = {2}},
          {.name = "c", .dtype = DType::bf16, .shape = {7}}};
}

TEST(ShardWriter, WhatIsWrittenOpensAsACheckpoint) {
  const deepinfer::testing::TempDirectory directory;
  const std::vector<ShardPlan> shards = plan_shards(some_tensors(), 16);
  char next = 'A';
  for (const ShardPlan& shard : shards) {
    Result<ShardWriter> writer = ShardWriter::create(directory.path(), shard);
    ASSERT_TRUE(writer.has_value()) << writer.error().message;
    for (const TensorDescription& tensor : shard.tensors) {
      const std::string bytes(tensor.size_bytes(), next++);
      ASSERT_TRUE(writer->write(std::as_bytes(std::span(bytes))).has_value());
    }
    EXPECT_FALSE(std::filesystem::exists(directory.path() / shard.file));
    ASSERT_TRUE(writer->finish().has_value());
    EXPECT_EQ(std::filesystem::file_size(directory.path() / shard.file), shard.size_bytes);
  }
  ASSERT_TRUE(write_text_file(directory.path() / "model.safetensors.index.json", compose_index(shards)).has_value());

  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  ASSERT_EQ((*checkpoint)->tensors().size(), 4U);
  for (const TensorDescription& tensor : some_tensors()) {
    const TensorView* view = (*checkpoint)->find(tensor.name);
    ASSERT_NE(view, nullptr) << tensor.name;
    EXPECT_EQ(view->dtype, tensor.dtype);
    EXPECT_EQ(view->shape, tensor.shape);
  }
  EXPECT_TRUE((*checkpoint)->warnings().empty());
}

TEST(ShardWriter, AScaleStaysWithItsWeightAndLargeItemsComeFirst) {
  const std::vector<ShardPlan> shards = plan_shards(some_tensors(), 15);
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0].file, "model-00001-of-00002.safetensors");
  EXPECT_EQ(shards[0].tensors[1].name, "a.scale");
  EXPECT_EQ(shards[1].tensors[0].name, "b");
  const std::vector<ShardPlan> one = plan_shards(some_tensors(), 1000);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].tensors[0].name, "b");
  EXPECT_EQ(one[0].tensors[1].name, "c");
  EXPECT_EQ(one[0].tensors[2].name, "a.weight");
}

TEST(ShardWriter, AnUnwritableDirectoryIsAnError) {
  const Result<ShardWriter> writer = ShardWriter::create("/nonexistent", plan_shards(some_tensors(), 1000)[0]);
  ASSERT_FALSE(writer.has_value());
  EXPECT_EQ(writer.error().kind, ErrorKind::io);
  EXPECT_EQ(write_text_file("/nonexistent/x", "").error().kind, ErrorKind::io);
}

TEST(ShardWriterDeathTest, AShardGetsExactlyTheBytesItPromises) {
  const deepinfer::testing::TempDirectory directory;
  Result<ShardWriter> writer = ShardWriter::create(directory.path(), plan_shards(some_tensors(), 1000)[0]);
  ASSERT_TRUE(writer.has_value());
  EXPECT_DEATH((void)writer->finish(), "a shard gets as many bytes as its header promises");
}

}  // namespace
}  // namespace deepinfer::weights

#include "model/deepseek_v41/memory_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "model/config_fixtures.h"

namespace deepinfer::model {
namespace {

using testing::real_config;

constexpr std::size_t kGigabyte = 1'000'000'000;

TEST(MemoryPlan, CachesOfTheRealModelHaveTheSizesOfTheSpecification) {
  const CacheBytes cache = cache_bytes(real_config(), 5);
  EXPECT_EQ(cache.per_block(), 113920U);
  EXPECT_EQ(cache.per_token(), 890U);
  EXPECT_EQ(cache.compressed_rows, (432U + 288U) * 128U);
  EXPECT_EQ(cache.index_keys, (102U + 68U) * 128U);
  EXPECT_EQ(cache.window_ring, 70752U);
  EXPECT_EQ(cache.window_rings, 43U * 70752U);
  EXPECT_EQ(cache.compressor_tail, 28672U);
  EXPECT_EQ(cache.compressor_tails, 3U * 28672U);
}

TEST(MemoryPlan, Mxfp8RowsTakeTheSpaceOfWindowRows) {
  Config config = real_config();
  config.use_fp4_sparse_kv = false;
  EXPECT_EQ(cache_bytes(config, 5).compressed_rows, 528U * (3U * 64U + 128U));
}

TEST(MemoryPlan, WithoutALimitEveryRequestFits) {
  const Result<MemoryPlan> plan =
      plan_memory(real_config(), {.max_requests = 4, .max_batched_tokens = 512, .max_model_len = 1000, .max_drafts = 5});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->sizes.max_blocks_per_request, 8);
  EXPECT_EQ(plan->sizes.num_blocks, 33);
  EXPECT_EQ(plan->sizes.num_slots, 5);
  EXPECT_EQ(plan->sizes.max_logit_rows, 24);
  EXPECT_EQ(plan->capacity_tokens(), 4096);
  EXPECT_EQ(plan->weight_bytes, 510286023000U);
  EXPECT_EQ(plan->slot_bytes, 5U * (43U * 70752U + 3U * 28672U));
  EXPECT_EQ(plan->total_bytes(), plan->weight_bytes + plan->slot_bytes + plan->block_bytes + plan->workspace_bytes);
}

TEST(MemoryPlan, BlocksTakeWhatTheOtherPartsLeave) {
  const MemoryLimits limits{.memory_bytes = 600 * kGigabyte, .max_requests = 64, .max_batched_tokens = 8192, .max_drafts = 5};
  const Result<MemoryPlan> plan = plan_memory(real_config(), limits);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_LE(plan->total_bytes(), limits.memory_bytes);
  EXPECT_GT(plan->total_bytes() + plan->cache.per_block(), limits.memory_bytes);
}

TEST(MemoryPlan, MappedEngramTablesAreNotCounted) {
  const Result<MemoryPlan> plan =
      plan_memory(real_config(), {.memory_bytes = 320 * kGigabyte, .max_model_len = 4096, .engram_tables = EngramTables::on_disk});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->weight_bytes, 510286023000U - 202758032400U);
}

TEST(MemoryPlan, EngramTablesInHostMemoryCountThere) {
  MemoryLimits limits{.memory_bytes = 320 * kGigabyte, .max_model_len = 4096, .engram_tables = EngramTables::in_host_memory};
  const Result<MemoryPlan> plan = plan_memory(real_config(), limits);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->weight_bytes, 510286023000U - 202758032400U);
  EXPECT_EQ(plan->host_bytes, 202758032400U);
  EXPECT_LE(plan->total_bytes(), limits.memory_bytes);
  limits.host_memory_bytes = 202758032400U;
  EXPECT_TRUE(plan_memory(real_config(), limits).has_value());
  --limits.host_memory_bytes;
  const Result<MemoryPlan> refused = plan_memory(real_config(), limits);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  EXPECT_EQ(refused.error().message,
            "the Engram tables (202758032400 bytes) need more than the 202758032399 bytes that are free in host memory: free some, or use more "
            "machines");
}

TEST(MemoryPlan, WhatIsRepackedAreTheWeightsOfProducts) {
  const Config config = real_config();
  std::map<std::string, std::size_t> sizes;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    sizes[expected.tensor.name] = expected.tensor.size_bytes();
  }
  std::size_t quantised = 0;
  for (const auto& [name, bytes] : sizes) {
    const std::string weight = name.substr(0, name.rfind('.')) + ".weight";
    const bool is_scale_of_product = name.ends_with(".scale") && !name.ends_with(".embed.scale");
    quantised += is_scale_of_product && sizes.contains(weight) ? bytes + sizes[weight] : 0;
  }
  const Result<MemoryPlan> plan = plan_memory(config, {});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  // Head, Markov head, routers, compressors, indexers and the image tower; not norms, biases, embeddings and single rows.
  std::size_t bf16_products = 0;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const std::string& name = expected.tensor.name;
    const bool is_matrix = expected.tensor.dtype == DType::bf16 && expected.tensor.shape.rank() == 2 && name.ends_with(".weight");
    const bool is_table = name.ends_with("embed.weight");
    bf16_products += is_matrix && !is_table && !name.ends_with("confidence_head.proj.weight") ? expected.tensor.size_bytes() : 0;
  }
  EXPECT_EQ(plan->repacked_bytes, quantised + bf16_products);
  EXPECT_EQ(plan->weights[WeightPart::routed_experts].placed_bytes, plan->weights[WeightPart::routed_experts].bytes);
  EXPECT_EQ(rank_sizes(config, {.rank = 3, .num_ranks = 8})[WeightPart::routed_experts].placed_bytes, 288777830400U / 8U);
}

TEST(MemoryPlan, ARankHoldsItsExpertsAndRows) {
  const Config config = real_config();
  const InventorySizes whole = rank_sizes(config, {});
  std::size_t experts = 0;
  std::size_t tables = 0;
  for (std::int32_t rank = 0; rank < 7; ++rank) {
    const InventorySizes part = rank_sizes(config, {.rank = rank, .num_ranks = 7});
    experts += part[WeightPart::routed_experts].bytes;
    tables += part[WeightPart::engram_tables].bytes;
    EXPECT_EQ(part[WeightPart::backbone].bytes, whole[WeightPart::backbone].bytes);
  }
  EXPECT_EQ(experts, whole[WeightPart::routed_experts].bytes);
  EXPECT_EQ(tables, whole[WeightPart::engram_tables].bytes);
  EXPECT_EQ(rank_sizes(config, {.rank = 3, .num_ranks = 8})[WeightPart::routed_experts].bytes, 288777830400U / 8U);
}

TEST(MemoryPlan, TooLittleMemoryIsExplainedWithNumbers) {
  const Result<MemoryPlan> no_room = plan_memory(real_config(), {.memory_bytes = 80 * kGigabyte});
  ASSERT_FALSE(no_room.has_value());
  EXPECT_EQ(no_room.error().kind, ErrorKind::exhausted);
  EXPECT_NE(no_room.error().message.find("weights (510286023000 bytes)"), std::string::npos) << no_room.error().message;

  const Result<MemoryPlan> short_cache = plan_memory(real_config(), {.kv_memory_bytes = 113920 * 10});
  ASSERT_FALSE(short_cache.has_value());
  EXPECT_EQ(short_cache.error().kind, ErrorKind::exhausted);
  EXPECT_EQ(short_cache.error().message,
            "a request of 1048576 tokens needs 933346560 bytes of blocks, but "
            "there are only 1139200: give the cache more memory or lower "
            "max_model_len to 1152");
}

TEST(MemoryPlan, SenselessLimitsAreRefused) {
  const Config config = real_config();
  const auto message = [&config](const MemoryLimits& limits) {
    const Result<MemoryPlan> plan = plan_memory(config, limits);
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_EQ(message({.max_requests = 0}), "max_requests is 0, it must be at least 1");
  EXPECT_EQ(message({.max_drafts = 6}), "max_drafts is 6, it must be in 0 … 5, the trained block");
  EXPECT_EQ(message({.max_requests = 100, .max_batched_tokens = 512, .max_drafts = 5}),
            "max_batched_tokens is 512, it must be at least max_requests times (1 + "
            "max_drafts), 600");
  EXPECT_EQ(message({.max_model_len = 1048577}), "max_model_len is 1048577, it must be in 1 … 1048576");
  EXPECT_EQ(message({.rank = {.rank = 2, .num_ranks = 2}}), "rank is 2, it must be below the number of ranks, 2");
}

}  // namespace
}  // namespace deepinfer::model

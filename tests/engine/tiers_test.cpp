// Prefixes that leave the device and come back, through memory and through a directory: restored is kept, damaged is a miss.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;

class Tiers : public testing::Test {
 protected:
  Tiers() { fs::remove_all(folder_); }
  ~Tiers() override { fs::remove_all(folder_); }

  /// Room on the device for little more than one request.
  HarnessOptions small_device(std::size_t memory_bytes, const fs::path& directory = {}) const {
    return {.max_requests = 1,
            .max_model_len = 60,
            .num_blocks = 16,
            .num_extra_slots = 1,
            .prefix_cache = true,
            .has_tiers = true,
            .tier_memory_bytes = memory_bytes,
            .tier_directory = directory};
  }
  engine::GenerationRequest request() {
    return {.prompt = random_prompt(random_, 41), .sampling = {.temperature = 0}, .max_tokens = 6, .ignore_eos = true};
  }
  static Reply run(Harness& harness, const engine::GenerationRequest& request) {
    const RequestId id = harness.submit(request);
    harness.run_to_the_end();
    harness.engine.check_integrity();
    return harness.reply(id);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("deepinfer_tiers_" + std::to_string(getpid()));
  std::mt19937_64 random_{61};
};

TEST_F(Tiers, WhatWasEvictedComesBackFromMemory) {
  Harness harness(small_device(1 << 20));
  const auto first = request();
  const auto second = request();
  for (int round = 0; round < 3; ++round) {
    for (const auto* request : {&first, &second}) {
      const Reply reply = run(harness, *request);
      EXPECT_EQ(reply.tokens, alone(*request).tokens);
      EXPECT_EQ(reply.num_cached_tokens, round == 0 ? 0 : 40) << "the device has no room for both";
    }
  }
  EXPECT_GT(harness.engine.stats().tiers.num_in_memory, 0U);
}

TEST_F(Tiers, WithoutThemItIsComputedAgain) {
  HarnessOptions options = small_device(0);
  options.has_tiers = false;
  Harness harness(options);
  const auto first = request();
  run(harness, first);
  run(harness, request());
  EXPECT_EQ(run(harness, first).num_cached_tokens, 0);
}

TEST_F(Tiers, TheNextProcessFindsPrefixesOnTheDisk) {
  const auto asked = request();
  {
    Harness harness(small_device(500, folder_));
    run(harness, asked);
  }
  Harness harness(small_device(500, folder_));
  const Reply reply = run(harness, asked);
  EXPECT_EQ(reply.num_cached_tokens, 40);
  EXPECT_EQ(reply.tokens, alone(asked).tokens);
}

/// Many requests whose prefixes are on the disk: some are called off while their files are read, the others get their tokens.
TEST_F(Tiers, RequestsWaitForTheirFilesAndNobodyElseDoes) {
  std::vector<engine::GenerationRequest> asked;
  {
    HarnessOptions options = small_device(0, folder_);
    Harness harness(options);
    for (int i = 0; i < 8; ++i) {
      asked.push_back(request());
      run(harness, asked.back());
    }
  }
  HarnessOptions options = small_device(0, folder_);
  options.max_requests = 4;
  options.num_blocks = 160;
  options.num_extra_slots = 40;
  options.overlap_depth = 1;
  Harness harness(options);
  std::vector<RequestId> ids;
  for (const engine::GenerationRequest& request : asked) {
    ids.push_back(harness.submit(request));
    harness.engine.cancel(harness.submit(request));
  }
  const engine::GenerationRequest fresh = request();
  const RequestId fresh_id = harness.submit(fresh);
  harness.run_to_the_end();
  harness.engine.check_integrity();
  std::int32_t num_cached = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(harness.reply(ids[i]).tokens, alone(asked[i]).tokens);
    num_cached += harness.reply(ids[i]).num_cached_tokens;
  }
  EXPECT_EQ(num_cached, 8 * 40);
  EXPECT_EQ(harness.reply(fresh_id).tokens, alone(fresh).tokens);
}

TEST_F(Tiers, ADamagedFileIsAMissNeverAWrongToken) {
  const auto asked = request();
  {
    Harness harness(small_device(0, folder_));
    run(harness, asked);
  }
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder_ / "fake")) {
    files.push_back(file.path());
  }
  ASSERT_GE(files.size(), 10U);
  for (std::size_t i = 0; i < files.size(); i += 2) {
    std::fstream file(files[i], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(70);
    file.put('!');
    file.put('?');
  }
  Harness harness(small_device(0, folder_));
  const Reply reply = run(harness, asked);
  EXPECT_LT(reply.num_cached_tokens, 40);
  EXPECT_EQ(reply.tokens, alone(asked).tokens);
  EXPECT_GT(harness.engine.stats().tiers.num_damaged, 0);
}

}  // namespace
}  // namespace deepinfer::test

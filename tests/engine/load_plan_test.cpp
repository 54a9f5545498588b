// Where the tables of Engram go when nobody says, and what is said when they go nowhere. Sizes of the released model.
#include "engine/load_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "model/config_fixtures.h"

namespace deepinfer::test {
namespace {

using engine::EngramMemory;
using model::EngramTables;

constexpr std::size_t kGigabyte = 1'000'000'000;
constexpr std::size_t kTableBytes = 202'758'032'400;

DeviceInfo gpu(std::size_t memory_gigabytes, std::size_t host_gigabytes) {
  return {.name = "gpu", .description = "", .memory_bytes = memory_gigabytes * kGigabyte, .host_bytes = host_gigabytes * kGigabyte};
}
DeviceInfo cpu(std::size_t memory_gigabytes) {
  return {.name = "cpu", .description = "", .memory_bytes = memory_gigabytes * kGigabyte, .reads_host_memory = true};
}

engine::EngineOptions options(EngramMemory place = EngramMemory::automatic) {
  return {.max_requests = 4, .max_model_len = 4096, .max_drafts = 5, .engram_memory = place};
}

Result<model::MemoryPlan> plan(const DeviceInfo& device, const engine::EngineOptions& wanted = options()) {
  return engine::plan_memory(wanted, model::testing::real_config(), device);
}

void expect_place(const Result<model::MemoryPlan>& plan, EngramTables place) {
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->engram_tables, place);
  EXPECT_EQ(plan->host_bytes, place == EngramTables::in_host_memory ? kTableBytes : 0U);
}

TEST(LoadPlan, TablesLieOnTheDeviceWhereEverythingFitsThere) {
  expect_place(plan(gpu(600, 600)), EngramTables::in_memory);
  expect_place(plan(cpu(600)), EngramTables::in_memory);
}

TEST(LoadPlan, TablesGoToTheHostBeforeBlocksDo) {
  expect_place(plan(gpu(320, 250)), EngramTables::in_host_memory);
  engine::EngineOptions long_requests = options();
  long_requests.max_requests = 64;
  long_requests.max_model_len = 1 << 20;  // 60 GB of blocks
  expect_place(plan(gpu(520, 250), long_requests), EngramTables::in_host_memory);
  const auto without_a_host = plan(gpu(520, 100), long_requests);
  expect_place(without_a_host, EngramTables::in_memory);
  EXPECT_LT(without_a_host->capacity_tokens(), std::int64_t{64} << 20);
}

TEST(LoadPlan, ACpuReadsTablesInTheFilesWhenTheyDoNotFit) { expect_place(plan(cpu(320)), EngramTables::on_disk); }

TEST(LoadPlan, TheStatedPlaceCounts) {
  expect_place(plan(gpu(600, 600), options(EngramMemory::host)), EngramTables::in_host_memory);
  expect_place(plan(gpu(600, 600), options(EngramMemory::device)), EngramTables::in_memory);
  expect_place(plan(cpu(600), options(EngramMemory::host)), EngramTables::in_memory);
  const auto refused = plan(gpu(320, 600), options(EngramMemory::device));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("weights (510286023000 bytes)"), std::string::npos) << refused.error().message;
  const auto full_host = plan(gpu(600, 100), options(EngramMemory::host));
  ASSERT_FALSE(full_host.has_value());
  EXPECT_NE(full_host.error().message.find("the Engram tables (202758032400 bytes) need more than the 100000000000 bytes"), std::string::npos)
      << full_host.error().message;
}

TEST(LoadPlan, HostMemoryThatIsPromisedIsNotFree) {
  engine::EngineOptions wanted = options();
  expect_place(plan(gpu(320, 204), wanted), EngramTables::in_host_memory);
  wanted.swap_memory_bytes = kGigabyte;
  wanted.prefix_memory_bytes = kGigabyte;
  const auto refused = plan(gpu(320, 204), wanted);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("the 202000000000 bytes that are free in host memory"), std::string::npos) << refused.error().message;
}

TEST(LoadPlan, WhenNoPlaceHasRoomBothAreShown) {
  const auto refused = plan(gpu(320, 100));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  for (const char* part : {"weights (510286023000 bytes)", "320000000000 bytes of memory", "outside the memory of the device",
                           "the Engram tables (202758032400 bytes)", "100000000000 bytes that are free"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << part << ": " << refused.error().message;
  }
  const auto no_weights = plan(gpu(139, 600));  // all weights but the tables need 308 GB
  ASSERT_FALSE(no_weights.has_value());
  EXPECT_NE(no_weights.error().message.find("weights (307527990600 bytes)"), std::string::npos) << no_weights.error().message;
}

TEST(LoadPlan, OptionsThatMakeNoSenseAreRefusedOnce) {
  engine::EngineOptions wanted = options();
  wanted.max_requests = 0;
  const auto refused = plan(gpu(320, 100), wanted);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "max_requests is 0, it must be at least 1");
}

}  // namespace
}  // namespace deepinfer::test

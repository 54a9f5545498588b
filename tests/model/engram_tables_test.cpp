// Rows of Engram are the same ones wherever the tables lie and whenever they arrive. On a GPU (DEEPINFER_TEST_DEVICE=cuda) "host memory" is
// pinned memory that kernels read over the bus, and steps of equal shape are recorded and replayed.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "late_device.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny";
const std::filesystem::path kNano = std::filesystem::path(DEEPINFER_MODELS) / "nano";

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<TokenId> some_ids(std::size_t count, std::int32_t seed) {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back({static_cast<std::int32_t>((i * i * 31 + static_cast<std::size_t>(seed)) % 900) + 3});
  }
  return out;
}

/// Logits of a prompt, then of two requests that decode together, so that several steps have one shape.
std::vector<float> logits_of(TestModel& model) {
  Sequence a(model);
  Sequence b(model);
  std::vector<float> out = a.prefill(some_ids(150, 5));
  const std::vector<float> of_b = b.prefill(some_ids(37, 11), 16);
  out.insert(out.end(), of_b.begin(), of_b.end());
  for (std::int32_t step = 0; step < 6; ++step) {
    const std::vector<TokenId> token_a = some_ids(1, 7 * step);
    const std::vector<TokenId> token_b = some_ids(1, 13 * step + 1);
    const std::vector<model::Chunk> chunks = {a.next(token_a, 1), b.next(token_b, 1)};
    const std::span<const float> logits = model.model->forward(chunks);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

class EngramTables : public ::testing::TestWithParam<std::filesystem::path> {};
INSTANTIATE_TEST_SUITE_P(Models, EngramTables, ::testing::Values(kTiny, kNano),
                         [](const auto& directory) { return directory.param.filename().string(); });

TEST_P(EngramTables, EveryPlaceGivesTheSameBits) {
  TestModel in_memory = TestModel::load(GetParam(), {.num_threads = 2});
  ASSERT_FALSE(in_memory.model->config().engram_layer_ids.empty());
  const std::vector<float> expected = logits_of(in_memory);
  for (const model::EngramTables place : {model::EngramTables::in_host_memory, model::EngramTables::on_disk}) {
    std::unique_ptr<Device> device = test_device({.num_threads = 2});
    if (place == model::EngramTables::on_disk && !device->info().reads_host_memory) {
      continue;  // only the CPU has this place
    }
    TestModel other = TestModel::load_on(std::move(device), GetParam(), place);
    EXPECT_TRUE(same_bits(logits_of(other), expected)) << static_cast<int>(place);
  }
}

TEST_P(EngramTables, RowsAreWaitedForAndNotNeededBefore) {
  TestModel at_once = TestModel::load_on(cpu::make_device({.num_threads = 2}), GetParam());
  TestModel late = TestModel::load_on(std::make_unique<LateDevice>(), GetParam());
  EXPECT_TRUE(same_bits(logits_of(late), logits_of(at_once)));
}

/// A CPU whose host memory is full.
class FullHost final : public Device {
 public:
  [[nodiscard]] const DeviceInfo& info() const override { return device_->info(); }
  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override { return device_->allocate(size_bytes); }
  [[nodiscard]] Buffer allocate_host(std::size_t /*size_bytes*/) override { return {}; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return device_->make_stream(); }
  [[nodiscard]] Ops& ops() override { return device_->ops(); }

 private:
  std::unique_ptr<Device> device_ = cpu::make_device({.num_threads = 1});
};

TEST(EngramTablesMemory, AFullHostIsAnErrorWithTheBytes) {
  FullHost device;
  const auto checkpoint = weights::Checkpoint::open(kTiny);
  const auto config = model::load_config(kTiny);
  ASSERT_TRUE(checkpoint.has_value() && config.has_value());
  const auto model =
      model::DeepseekV41::create(device, *checkpoint, *config, std::vector<std::int32_t>(static_cast<std::size_t>(config->vocab_size)),
                                 {.num_blocks = 2, .num_slots = 2, .max_rows = 2, .max_chunks = 1, .max_logit_rows = 1, .max_blocks_per_request = 1},
                                 model::EngramTables::in_host_memory);
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().kind, ErrorKind::exhausted);
  EXPECT_NE(model.error().message.find("the host has no room for the Engram tables: "), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace deepinfer::test

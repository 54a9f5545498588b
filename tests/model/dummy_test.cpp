#include "model/deepseek_v41/dummy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/config_fixtures.h"
#include "model/deepseek_v41/inspect.h"
#include "weights/checkpoint.h"
#include "weights/temp_directory.h"
#include "weights/value_check.h"

namespace deepinfer::model {
namespace {

using deepinfer::testing::TempDirectory;

constexpr const char* kRealConfig = DEEPINFER_MODELS "/configs/deepseek-v4.1-flash.json";
constexpr const char* kTinyConfig = DEEPINFER_TEST_DATA "/tiny/config.json";

DummyPlan plan_of(const char* config, std::vector<ConfigOverride> overrides, std::size_t shard_bytes = std::size_t{10} << 30) {
  Result<DummyPlan> plan = plan_dummy({.config_file = config, .overrides = std::move(overrides), .seed = 7, .shard_bytes = shard_bytes});
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  return plan ? std::move(*plan) : DummyPlan{};
}

std::string refusal(std::vector<ConfigOverride> overrides) {
  const Result<DummyPlan> plan = plan_dummy({.config_file = kRealConfig, .overrides = std::move(overrides)});
  return plan ? "accepted" : plan.error().message;
}

TEST(Dummy, TheWrittenCheckpointIsCompleteAndClean) {
  const TempDirectory directory;
  const DummyPlan plan = plan_of(kTinyConfig, {}, 2'000'000);
  EXPECT_EQ(plan.shards.size(), 3U);
  std::size_t reported = 0;
  const Result<void> written = write_dummy(plan, directory.path(), [&reported](const DummyProgress& progress) {
    EXPECT_GE(progress.written_bytes, reported);
    EXPECT_EQ(progress.total_bytes, 5771644U);
    reported = progress.written_bytes;
  });
  ASSERT_TRUE(written.has_value()) << written.error().message;
  EXPECT_EQ(reported, plan.total_bytes());

  const InspectReport report = inspect_report(directory.path(), {.values = ValueCheck::always});
  EXPECT_TRUE(report.ok) << report.text;
  EXPECT_EQ(report.text.find("warning"), std::string::npos) << report.text;
}

TEST(Dummy, TheSamePlanGivesTheSameBytesWhateverTheShards) {
  const TempDirectory one;
  const TempDirectory many;
  ASSERT_TRUE(write_dummy(plan_of(kTinyConfig, {}), one.path(), {}).has_value());
  ASSERT_TRUE(write_dummy(plan_of(kTinyConfig, {}, 1'000'000), many.path(), {}).has_value());
  const auto a = weights::Checkpoint::open(one.path());
  const auto b = weights::Checkpoint::open(many.path());
  ASSERT_TRUE(a.has_value() && b.has_value());
  for (const weights::StoredTensor& tensor : (*a)->tensors()) {
    const TensorView* other = (*b)->find(tensor.name);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(std::equal(tensor.view.data, tensor.view.data + tensor.view.size_bytes(), other->data)) << tensor.name;
  }
}

TEST(Dummy, MatricesKeepTheMagnitudeOfTheirInput) {
  const TempDirectory directory;
  ASSERT_TRUE(write_dummy(plan_of(kTinyConfig, {}), directory.path(), {}).has_value());
  const auto checkpoint = weights::Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.has_value());
  const TensorView* codes = (*checkpoint)->find("layers.0.attn.wq_b.weight");  // [512, 64]
  const TensorView* scales = (*checkpoint)->find("layers.0.attn.wq_b.scale");  // [16, 2]
  double sum = 0;
  for (std::int64_t row = 0; row < 512; ++row) {
    for (std::int64_t column = 0; column < 64; ++column) {
      const double value = e4m3_to_float(codes->as<std::uint8_t>()[row * 64 + column]) *
                           static_cast<double>(ue8m0_to_float(scales->as<std::uint8_t>()[row / 32 * 2 + column / 32]));
      sum += value * value;
    }
  }
  const double gain = std::sqrt(sum / 512);  // root mean square of an output for inputs of magnitude 1
  EXPECT_GT(gain, 0.7);
  EXPECT_LT(gain, 1.8);
}

TEST(Dummy, TheTokenizerIsCopied) {
  const TempDirectory directory;
  directory.write("source", "{\"x\":1}");
  DummyPlan plan = plan_of(kTinyConfig, {});
  plan.tokenizer_file = directory.path() / "source";
  ASSERT_TRUE(write_dummy(plan, directory.path() / "out", {}).has_value());
  EXPECT_EQ(directory.read("out/tokenizer.json"), "{\"x\":1}");
}

TEST(Dummy, AUsedDirectoryIsLeftAlone) {
  const TempDirectory directory;
  directory.write("config.json", "mine");
  const Result<void> written = write_dummy(plan_of(kTinyConfig, {}), directory.path(), {});
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(directory.read("config.json"), "mine");
}

TEST(Dummy, ADiskThatIsTooSmallIsNoticedBeforeWriting) {
  const TempDirectory directory;
  DummyPlan plan = plan_of(kRealConfig, {});
  plan.sizes.parts[0].bytes = std::size_t{1} << 60;
  const Result<void> written = write_dummy(plan, directory.path(), {});
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().kind, ErrorKind::exhausted);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Dummy, DescribingTheRealModelNeedsNoDisk) {
  const std::string text = describe_dummy(plan_of(kRealConfig, {}));
  EXPECT_NE(text.find("510,286,023,000"), std::string::npos) << text;
  EXPECT_NE(text.find("113,920 bytes"), std::string::npos) << text;
}

TEST(Dummy, FewerLayersKeepEveryRole) {
  const DummyPlan plan = plan_of(kRealConfig, {{"num_hidden_layers", "16"}, {"n_routed_experts", "4"}, {"vision_config", "null"}});
  const Config& c = plan.config;
  EXPECT_EQ(c.num_hidden_layers, 16);
  EXPECT_EQ(c.kv_source_layer_ids.size(), 4U);
  EXPECT_EQ(c.index_source_layer_ids.size(), 8U);
  EXPECT_EQ(c.split_layer(), c.kv_source_layer_ids[3]);
  EXPECT_EQ(c.candidate_source_layer_id, c.kv_source_layer_ids[3]);
  EXPECT_TRUE(c.is_kv_source(c.engram_layer_ids[1]));
  EXPECT_EQ(c.dspark_target_layer_ids, (std::vector<std::int32_t>{13, 14, 15}));
  EXPECT_EQ(c.num_experts_per_tok, 4);
  EXPECT_FALSE(c.vision.has_value());
  EXPECT_NE(describe_dummy(plan).find("adapted: num_experts_per_tok becomes 4"), std::string::npos);
}

TEST(Dummy, ASmallerVocabularyMovesTheSpecialTokens) {
  const Config c = plan_of(kRealConfig, {{"vocab_size", "4096"}, {"engram_vocab_size", "1000"}}).config;
  EXPECT_EQ(c.image_token_id, 4095);
  EXPECT_EQ(c.dspark_noise_token_id, 4094);
  EXPECT_EQ(c.engram_compressed_vocab_size, 4096);
  EXPECT_LT(c.engram_num_embeddings[0], 48 * 1000);
}

TEST(Dummy, ADrafterCanBeLeftOut) {
  const Config c = plan_of(kRealConfig, {{"num_nextn_predict_layers", "0"}}).config;
  EXPECT_FALSE(c.has_drafter());
  EXPECT_EQ(c.compress_ratios.size(), 40U);
}

TEST(Dummy, SenselessOverridesAreExplained) {
  EXPECT_EQ(refusal({{"no_such_key", "1"}}), "the configuration has no key no_such_key");
  EXPECT_EQ(refusal({{"text_config.no_such_key", "1"}}), "the configuration has no key text_config.no_such_key");
  EXPECT_EQ(refusal({{"hidden_size", "many"}}), "hidden_size=many: the value is no JSON (expected a value at line 1 column 1)");
  EXPECT_EQ(refusal({{"hidden_size", "100"}}), "the configuration: text_config.hidden_size is 100: must be a multiple of 32");
  EXPECT_EQ(refusal({{"num_hidden_layers", "41"}}), "num_hidden_layers must not exceed the 40 of the configuration");
  EXPECT_EQ(refusal({{"num_hidden_layers", "12"}}),
            "num_hidden_layers must be at least 13, so many layers have a role; for less also set compress_ratios, kv_source_layer_ids, "
            "index_source_layer_ids, candidate_source_layer_id, engram_layer_ids and dspark_target_layer_ids");
  EXPECT_EQ(refusal({{"text_config", "7"}}), "text_config must stay an object");
}

}  // namespace
}  // namespace deepinfer::model

#include "model/deepseek_v41/inventory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "model/config_fixtures.h"

namespace deepinfer::model {
namespace {

using testing::real_config;

TEST(Inventory, TheRealModelHasTheTensorsAndBytesOfTheSpecification) {
  const InventorySizes sizes = inventory_sizes(expected_tensors(real_config()));
  EXPECT_EQ(sizes.total().num_tensors, 96085U);
  EXPECT_EQ(sizes.total().bytes, 510286023000U);
  const auto is = [&sizes](WeightPart part, std::size_t num_tensors, std::size_t bytes) {
    EXPECT_EQ(sizes[part].num_tensors, num_tensors) << name_of(part);
    EXPECT_EQ(sizes[part].bytes, bytes) << name_of(part);
  };
  is(WeightPart::routed_experts, 92160, 288777830400);
  is(WeightPart::backbone, 1243, 6884040128);
  is(WeightPart::embedding_and_head, 3, 2647664640);
  is(WeightPart::engram_tables, 4, 202758032400);
  is(WeightPart::engram_projections, 8, 315043840);
  is(WeightPart::drafter_experts, 2304, 7219445760);
  is(WeightPart::drafter_rest, 97, 713428872);
  is(WeightPart::vision, 266, 970536960);
}

TEST(Inventory, NamesAreUnique) {
  std::set<std::string> names;
  for (const ExpectedTensor& expected : expected_tensors(real_config())) {
    EXPECT_TRUE(names.insert(expected.tensor.name).second) << expected.tensor.name;
  }
}

TEST(Inventory, FormsFollowTheTable) {
  const std::vector<ExpectedTensor> tensors = expected_tensors(real_config());
  const auto form = [&tensors](const std::string& name) {
    const auto found = std::ranges::find(tensors, name, [](const ExpectedTensor& expected) { return expected.tensor.name; });
    return found == tensors.end() ? std::string("absent") : found->tensor.form();
  };
  EXPECT_EQ(form("layers.0.attn.wo_a.weight"), "F8_E4M3 [8192, 4096]");
  EXPECT_EQ(form("layers.39.attn.wq_b.scale"), "F8_E8M0 [1024, 40]");
  EXPECT_EQ(form("layers.3.hc_ffn_fn"), "F32 [24, 20480]");
  EXPECT_EQ(form("layers.7.ffn.experts.383.w2.weight"), "I8 [5120, 1152]");
  EXPECT_EQ(form("layers.7.ffn.experts.383.w2.scale"), "F8_E8M0 [5120, 72]");
  EXPECT_EQ(form("layers.2.attn.compressor.wgate.weight"), "BF16 [512, 5120]");
  EXPECT_EQ(form("layers.20.attn.compressor.wgate.weight"), "absent");
  EXPECT_EQ(form("layers.24.attn.indexer.wk.weight"), "absent");
  EXPECT_EQ(form("layers.24.attn.indexer.wq_b.weight"), "F8_E4M3 [4096, 1280]");
  EXPECT_EQ(form("layers.14.engram.embed.scale"), "F8_E8M0 [384016682, 8]");
  EXPECT_EQ(form("layers.14.engram.wkv.weight"), "F8_E4M3 [25600, 6144]");
  EXPECT_EQ(form("mtp.2.ffn.gate.bias_vl"), "F32 [128]");
  EXPECT_EQ(form("mtp.0.main_proj.scale"), "F8_E8M0 [160, 480]");
  EXPECT_EQ(form("mtp.2.confidence_head.proj.weight"), "BF16 [1, 5376]");
  EXPECT_EQ(form("vision.blocks.31.mlp.w1.weight"), "BF16 [5632, 1024]");
  EXPECT_EQ(form("aligner.w1.weight"), "BF16 [5120, 9216]");
}

TEST(Inventory, TheBundledModelsAreComplete) {
  for (const std::string& directory : {std::string(DEEPINFER_MODELS "/nano"), std::string(DEEPINFER_TEST_DATA "/tiny")}) {
    const Result<Config> config = load_config(directory);
    const auto checkpoint = weights::Checkpoint::open(directory);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    const CheckpointFindings findings = validate_checkpoint(*config, **checkpoint);
    EXPECT_TRUE(findings.problems.empty()) << findings.problems.to_text(directory);
    EXPECT_TRUE(findings.warnings.empty()) << findings.warnings.front();
    const PartSize total = inventory_sizes(expected_tensors(*config)).total();
    EXPECT_EQ(total.num_tensors, (*checkpoint)->tensors().size());
    EXPECT_EQ(total.bytes, (*checkpoint)->payload_bytes());
  }
}

TEST(Inventory, AConfigurationOfAnotherSizeIsNoticedTensorByTensor) {
  const auto checkpoint = weights::Checkpoint::open(DEEPINFER_TEST_DATA "/tiny");
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  Config config = testing::parsed(testing::tiny_json());
  config.dspark_markov_rank = 64;
  config.vision.reset();
  const CheckpointFindings findings = validate_checkpoint(config, **checkpoint);
  EXPECT_EQ(findings.problems.to_text("tiny"),
            "tiny has 3 problems:\n"
            "  mtp.2.markov_head.embed.weight is BF16 [1024, 32], expected BF16 "
            "[1024, 64]: config.json and checkpoint do not belong together\n"
            "  mtp.2.markov_head.head.weight is BF16 [1024, 32], expected BF16 "
            "[1024, 64]: config.json and checkpoint do not belong together\n"
            "  mtp.2.confidence_head.proj.weight is BF16 [1, 160], expected BF16 [1, "
            "192]: config.json and checkpoint do not belong together");
  ASSERT_EQ(findings.warnings.size(), 1U);
  EXPECT_EQ(findings.warnings.front(), "unknown tensors are ignored: 26, the first is aligner.w1.bias");
}

}  // namespace
}  // namespace deepinfer::model

#include "model/deepseek_v41/inspect.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "model/config_fixtures.h"
#include "weights/temp_directory.h"

namespace deepinfer::model {
namespace {

/// A copy of the tiny checkpoint that a test may damage.
class Inspect : public ::testing::Test {
 protected:
  Inspect() { std::filesystem::copy(DEEPINFER_TEST_DATA "/tiny", directory_.path(), std::filesystem::copy_options::recursive); }

  [[nodiscard]] InspectReport report() const { return inspect_report(directory_.path(), {}); }
  void expect_problem(std::string_view sentence) const {
    const InspectReport found = report();
    EXPECT_FALSE(found.ok);
    EXPECT_NE(found.text.find(sentence), std::string::npos) << found.text;
  }
  /// Replaces text of the same length inside a file.
  void edit(const std::string& file, std::string_view from, std::string_view to) const {
    std::string bytes = directory_.read(file);
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    directory_.write(file, bytes.replace(at, from.size(), to));
  }
  /// Overwrites the first byte of a tensor.
  void damage(const std::string& name, char byte) const {
    const auto checkpoint = weights::Checkpoint::open(directory_.path());
    ASSERT_TRUE(checkpoint.has_value());
    for (const weights::StoredTensor& tensor : (*checkpoint)->tensors()) {
      if (tensor.name == name) {
        const std::string file = (*checkpoint)->shards()[static_cast<std::size_t>(tensor.shard)].name;
        std::string bytes = directory_.read(file);
        const std::string_view payload(tensor.view.as<char>(), tensor.view.size_bytes());
        const std::size_t at = bytes.find(payload);
        ASSERT_NE(at, std::string::npos);
        bytes[at] = byte;
        directory_.write(file, bytes);
        return;
      }
    }
    FAIL() << name << " is not there";
  }

  deepinfer::testing::TempDirectory directory_;
};

TEST_F(Inspect, AGoodCheckpointIsReportedInFull) {
  const InspectReport found = report();
  EXPECT_TRUE(found.ok) << found.text;
  for (const char* part : {"5,771,644 bytes", "configuration", "candidate source", "weights by part", "vision and aligner", "memory plan",
                           "repacked at load", "no problems found"}) {
    EXPECT_NE(found.text.find(part), std::string::npos) << part << "\n" << found.text;
  }
}

TEST_F(Inspect, AMissingShardIsNamed) {
  std::filesystem::remove(directory_.path() / "model-00002-of-00003.safetensors");
  expect_problem("model-00002-of-00003.safetensors: the file does not exist, fetch it again");
}

TEST_F(Inspect, ATruncatedShardIsAnErrorNotACrash) {
  std::filesystem::resize_file(directory_.path() / "model-00003-of-00003.safetensors", 1'000'000);
  expect_problem("the file is truncated, fetch it again");
}

TEST_F(Inspect, AWrongShapeIsNamedWithBothShapes) {
  edit("model-00001-of-00003.safetensors", "\"shape\":[1024,128]", "\"shape\":[128,1024]");
  expect_problem("embed.weight is BF16 [128, 1024], expected BF16 [1024, 128]");
}

TEST_F(Inspect, AWrongDtypeIsNamedWithBothDtypes) {
  edit("model-00001-of-00003.safetensors", "\"dtype\":\"F8_E4M3\"", "\"dtype\":\"F8_E8M0\"");
  expect_problem("is F8_E8M0");
}

TEST_F(Inspect, AnUnknownArchitectureIsNamed) {
  edit("config.json", "DeepseekV41ForCausalLM", "DeepseekV40ForCausalLM");
  expect_problem("architectures is [\"DeepseekV40ForCausalLM\"]: must be [\"DeepseekV41ForCausalLM\"]");
}

TEST_F(Inspect, AnInvalidScaleByteIsFound) {
  damage("layers.0.attn.wq_b.scale", '\xFF');
  expect_problem("\"layers.0.attn.wq_b.scale\" has the scale byte 255 at row 0, column 0");
}

TEST_F(Inspect, ANotANumberCodeIsFound) {
  damage("layers.3.attn.wo_a.weight", '\x7F');
  expect_problem("\"layers.3.attn.wo_a.weight\" has a value that is not a number at row 0, column 0");
}

TEST_F(Inspect, UnfoldedHyperConnectionNormsAreRefused) {
  edit("model.safetensors.index.json", "layers.0.attn.kv_norm.weight\"", "layers.0.hc_attn_norm.weight\"");
  edit("model-00001-of-00003.safetensors", "layers.0.attn.kv_norm.weight\"", "layers.0.hc_attn_norm.weight\"");
  expect_problem("layers.0.hc_attn_norm.weight is not part of this model: fold it into the hyper-connection's fn and remove it");
  expect_problem("layers.0.attn.kv_norm.weight is missing, expected BF16 [64]");
}

TEST_F(Inspect, AMissingScaleIsNamed) {
  edit("model.safetensors.index.json", "layers.0.attn.wq_a.scale\"", "layers.0.attn.wq_a.scalx\"");
  edit("model-00001-of-00003.safetensors", "layers.0.attn.wq_a.scale\"", "layers.0.attn.wq_a.scalx\"");
  expect_problem("layers.0.attn.wq_a.scale is missing, expected F8_E8M0 [2, 4]");
  expect_problem("warning: unknown tensors are ignored: 1, the first is layers.0.attn.wq_a.scalx");
}

TEST_F(Inspect, ConfigurationAndContainerAreReportedTogether) {
  std::filesystem::remove(directory_.path() / "model-00002-of-00003.safetensors");
  edit("config.json", "\"n_shared_experts\": 1", "\"n_shared_experts\": 2");
  expect_problem("text_config.n_shared_experts is 2: must be 1");
  expect_problem("model-00002-of-00003.safetensors: the file does not exist");
}

TEST_F(Inspect, EachDeviceHasItsPlan) {
  const InspectReport found = inspect_report(
      directory_.path(), {.devices = {{.device = "cuda:0", .limits = {.memory_bytes = 100'000'000, .rank = {.rank = 0, .num_ranks = 2}}},
                                      {.device = "cuda:1", .limits = {.memory_bytes = 1'000'000, .rank = {.rank = 1, .num_ranks = 2}}}}});
  EXPECT_FALSE(found.ok);
  EXPECT_NE(found.text.find("memory plan: cuda:0"), std::string::npos) << found.text;
  EXPECT_NE(found.text.find("problem: cuda:1: weights ("), std::string::npos) << found.text;
}

TEST_F(Inspect, ADirectoryWithoutACheckpointIsAProblem) {
  const InspectReport found = inspect_report("/nonexistent", {});
  EXPECT_FALSE(found.ok);
  EXPECT_NE(found.text.find("/nonexistent/config.json does not exist"), std::string::npos) << found.text;
}

}  // namespace
}  // namespace deepinfer::model

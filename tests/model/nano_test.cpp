// The bundled nano model against greedy outputs of an independent reference implementation (models/nano/samples.json).
#include <gtest/gtest.h>

#include "model/deepseek_v41/probe.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

TEST(Nano, TeacherForcedArgMaxEqualsTheStoredTokens) {
  TestModel nano = TestModel::load(std::filesystem::path(DEEPINFER_MODELS) / "nano");
  model::Probe probe(*nano.device, *nano.model, nano.sizes);
  const json::Value samples = read_json(std::filesystem::path(DEEPINFER_MODELS) / "nano" / "samples.json");
  std::int32_t positions = 0;
  std::int32_t differing = 0;
  for (const json::Value& sample : *samples.as_array()) {
    std::vector<std::int32_t> ids = integers(*sample.find("prompt_ids"));
    const auto from = static_cast<std::int32_t>(ids.size());
    const std::vector<std::int32_t> output = integers(*sample.find("output_ids"));
    const std::vector<double> margins = numbers(*sample.find("margins"));
    ids.insert(ids.end(), output.begin(), output.end());
    const auto scores = probe.score(token_ids(ids), from);
    ASSERT_TRUE(scores.has_value()) << scores.error().message;
    ASSERT_EQ(scores->size(), output.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      ++positions;
      if ((*scores)[i].arg_max.value != output[i]) {
        ++differing;
        EXPECT_LT(margins[i], 0.5) << *sample.find("name")->as_string() << " position " << i;
        EXPECT_LT((*scores)[i].margin, 0.5) << *sample.find("name")->as_string() << " position " << i;
      }
    }
  }
  std::printf("%d of %d positions differ\n", differing, positions);
  EXPECT_GT(positions, 500);
  EXPECT_LE(differing, positions * 2 / 100);
}

TEST(Probe, RefusesWhatItCannotRun) {
  TestModel tiny = TestModel::load(std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny");
  model::Probe probe(*tiny.device, *tiny.model, tiny.sizes);
  EXPECT_EQ(probe.forward({}, {}).error().message, "ids must not be empty");
  const std::vector<TokenId> outside = {{1024}};
  EXPECT_EQ(probe.forward(outside, {}).error().message, "ids holds 1024; the vocabulary has 1024 tokens");
  const std::vector<TokenId> ids = {{0}, {5}};
  EXPECT_EQ(probe.forward(ids, {.keep = 3}).error().message, "keep is 3; it must be 0 (exact) or at least the window, 16");
  EXPECT_EQ(probe.score(ids, 3).error().message, "from is 3; it must lie in [1, 2]");
}

TEST(Probe, ScoreAgreesWithForward) {
  TestModel tiny = TestModel::load(std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny");
  model::Probe probe(*tiny.device, *tiny.model, tiny.sizes);
  const std::vector<TokenId> ids = {{0}, {53}, {366}, {9}, {77}, {900}};
  const auto scores = probe.score(ids, 2);
  ASSERT_EQ(scores->size(), 4U);
  for (std::size_t position = 2; position < ids.size(); ++position) {
    const auto output = probe.forward(std::span(ids).first(position), {.chunk = 2});
    EXPECT_EQ((*scores)[position - 2].arg_max.value, arg_max(output->logits));
  }
}

}  // namespace
}  // namespace deepinfer::test

// Prefix hits at the model: from the kept state bit for bit as without a hit, from a run-up of one window (docs/spec/model.md 10.3) as
// the reference does it, and never writing to a cached row.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model_fixture.h"

namespace deepinfer::test {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny";
const std::filesystem::path kGoldens = std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens" / "model";

// Rms between two correct engines at this length (README of the goldens, "Tolerances"): a changed code moves everything after it, so single
// prompts say little and all of them together are compared. The reference kernels keep it for each prompt.
constexpr double kLogitBound = 0.35;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class Replay : public ::testing::TestWithParam<bool> {
 protected:
  /// Leaves rows of another request in every slot, so that reading one of them shows.
  void fill_slots() {
    std::mt19937 random(7);
    std::vector<std::unique_ptr<Sequence>> others;
    while (!model_.free_slots.empty()) {
      others.push_back(std::make_unique<Sequence>(model_));
      std::vector<TokenId> ids;
      for (int i = 0; i < 30; ++i) {
        ids.push_back({static_cast<std::int32_t>(random() % 1000)});
      }
      others.back()->prefill(ids);
    }
  }

  /// Packed rows and index keys of positions before `end`.
  std::vector<std::uint8_t> global_rows(const Sequence& sequence, std::int32_t end) const {
    std::vector<std::uint8_t> out;
    const model::CacheReader reader = sequence.reader();
    for (const auto& [layer, source] : model_.model->caches().sources) {
      for (std::int32_t row = 0; row < end / source.ratio; ++row) {
        for (const auto& bytes : {reader.compressed_row(layer, row), reader.index_key(layer, row)}) {
          out.insert(out.end(), bytes.begin(), bytes.end());
        }
      }
    }
    return out;
  }

  TestModel model_ = TestModel::load(kTiny, {.num_threads = 0, .use_reference_kernels = GetParam()});
};

INSTANTIATE_TEST_SUITE_P(Kernels, Replay, ::testing::Values(true, false),
                         [](const auto& kernels) { return kernels.param ? "Reference" : "Fast"; });

TEST_P(Replay, ARunUpBeforeAHitAgreesWithTheReference) {
  const json::Value facts = read_json(kGoldens / "encoder_replay.json");
  const GoldenFile golden(kGoldens / "encoder_replay.safetensors");
  const std::vector<TokenId> ids = token_ids(integers(*facts.find("ids")));
  const std::int32_t window = model_.model->config().sliding_window;
  fill_slots();
  double sum_of_all = 0;
  std::size_t num_of_all = 0;
  for (const std::int32_t hit : {15, 16, 17, 34, 49, 94}) {
    for (const std::int32_t keep : {0, 22}) {
      const std::string name = "hit" + std::to_string(hit) + (keep > 0 ? ".keep" + std::to_string(keep) : "");
      SCOPED_TRACE(name);
      std::vector<float> whole;
      for (const std::size_t chunk : GetParam() ? std::vector<std::size_t>{5} : std::vector<std::size_t>{0, 5}) {
        Sequence sequence(model_);
        sequence.prefill(std::span(ids).first(static_cast<std::size_t>(hit)));
        const auto cached = global_rows(sequence, hit);
        const std::int32_t start = std::max(0, hit - window);
        sequence.resume_behind_hit(hit, start);
        sequence.keep_from = keep > 0 ? static_cast<std::int32_t>(ids.size()) - keep : 0;
        const std::vector<float> logits = sequence.prefill(std::span(ids).subspan(static_cast<std::size_t>(start)), chunk);
        EXPECT_EQ(global_rows(sequence, hit), cached) << "cached rows are not rewritten";
        const std::vector<float> want = golden.values<float>(name + ".logits");
        double sum = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          sum += std::pow(static_cast<double>(logits[i]) - want[i], 2);
        }
        if (GetParam()) {
          EXPECT_LE(std::sqrt(sum / static_cast<double>(want.size())), kLogitBound);
        }
        sum_of_all += sum;
        num_of_all += want.size();
        whole = whole.empty() ? logits : whole;
        EXPECT_TRUE(same_bits(logits, whole)) << "chunks change nothing";
        const json::Value& stored = *facts.find("hits")->find(name);
        EXPECT_EQ(arg_max(logits), integers(*stored.find("tokens"))[0]);
      }
    }
  }
  EXPECT_LE(std::sqrt(sum_of_all / static_cast<double>(num_of_all)), kLogitBound);
}

TEST_P(Replay, AKeptStateContinuesBitForBit) {
  std::mt19937 random(8);
  std::vector<TokenId> ids;
  for (int i = 0; i < 170; ++i) {
    ids.push_back({static_cast<std::int32_t>(random() % 1000)});
  }
  const std::size_t hit = 128;
  Sequence cold(model_);
  const std::vector<float> want = cold.prefill(ids);
  fill_slots();
  Sequence first(model_);
  first.prefill(std::span(ids).first(hit));
  const SlotId kept = first.save_state();
  first.prefill(std::span(ids).subspan(hit));  // the ring moves on, the copy stays
  first.resume_from(kept, static_cast<std::int32_t>(hit));
  EXPECT_TRUE(same_bits(first.prefill(std::span(ids).subspan(hit), 9), want));
  EXPECT_EQ(first.reader().state_sha256(first.length()), cold.reader().state_sha256(cold.length()));
}

}  // namespace
}  // namespace deepinfer::test

// The drafter against the reference's goldens, and the law that verification leaves no trace of rejected drafts (docs/spec/model.md 7, 9.3).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "model_fixture.h"

namespace deepinfer::test {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny";
const std::filesystem::path kGoldens = std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens";

/// What one draft pass gave one request.
struct Draft {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<float> confidence_logits;
};

/// Greedy drafts for several requests at once, each behind its last processed token.
std::vector<Draft> draft(TestModel& model, std::span<const model::DraftStart> starts, std::int32_t num_drafts) {
  std::vector<Draft> out(starts.size());
  const auto vocab = static_cast<std::size_t>(model.model->config().vocab_size);
  model::PickDrafts pick = [&](std::int32_t, std::span<const float> logits, std::span<TokenId> tokens) {
    for (std::size_t r = 0; r < starts.size(); ++r) {
      const std::span<const float> row = logits.subspan(r * vocab, vocab);
      tokens[r] = {arg_max(row)};
      out[r].tokens.push_back(tokens[r]);
      out[r].logits.emplace_back(row.begin(), row.end());
    }
  };
  const std::span<const float> confidence = model.model->draft(starts, num_drafts, pick);
  for (std::size_t i = 0; i < confidence.size(); ++i) {
    out[i % starts.size()].confidence_logits.push_back(confidence[i]);
  }
  return out;
}

std::int32_t integer_at(const json::Value& object, std::string_view key) {
  return static_cast<std::int32_t>(*object.find(key)->as_number()->as_int64());
}

double rms_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class Drafter : public ::testing::TestWithParam<bool> {
 protected:
  TestModel model_ = TestModel::load(kTiny, {.num_threads = 0, .use_reference_kernels = GetParam()});

  /// Bytes of one row of a drafter ring.
  void write_ring(std::int32_t stage, SlotId slot, std::int32_t position, std::span<const std::uint8_t> row) {
    const model::Caches& caches = model_.model->caches();
    std::uint8_t* ring = caches.rings.at(static_cast<std::size_t>(model_.model->config().num_hidden_layers + stage));
    const auto place = static_cast<std::size_t>(slot.value * caches.ring_rows + position % caches.ring_rows);
    const auto stream = model_.device->make_stream();
    stream->copy(ring + place * row.size(), row.data(), row.size());
    stream->synchronize();
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Drafter, ::testing::Values(true, false),
                         [](const auto& kernels) { return kernels.param ? "Reference" : "Fast"; });

TEST_P(Drafter, AgreesWithTheModuleGolden) {
  const GoldenFile golden(kGoldens / "modules" / "dspark.safetensors");
  const json::Value facts = read_json(kGoldens / "modules" / "dspark.json");
  const auto position = integer_at(facts, "position");
  const std::int32_t window = model_.model->config().sliding_window;
  const SlotId slot = model_.free_slots.back();
  for (std::int32_t stage = 0; stage < 3; ++stage) {
    const auto rows = golden.values<std::uint8_t>("window_rows." + std::to_string(stage));
    const std::size_t width = rows.size() / static_cast<std::size_t>(window);
    for (std::int32_t p = position - window; p < position; ++p) {
      write_ring(stage, slot, p, std::span(rows).subspan(static_cast<std::size_t>(p % window) * width, width));
    }
  }
  const model::DraftStart start{
      .slot = slot, .position = position, .anchor = {integer_at(facts, "anchor")}};
  const Draft out = draft(model_, {&start, 1}, 5).front();

  EXPECT_EQ(out.tokens, token_ids(integers(*facts.find("tokens"))));
  const auto logits = golden.values<float>("logits");
  const auto confidence = golden.values<float>("confidence_logits");
  for (std::size_t i = 0; i < 5; ++i) {
    const auto expected = std::span(logits).subspan(i * out.logits[i].size(), out.logits[i].size());
    EXPECT_LT(rms_difference(out.logits[i], expected), GetParam() ? 1e-4 : 0.1) << i;
    EXPECT_NEAR(out.confidence_logits[i], confidence[i], GetParam() ? 1e-4 : 0.05) << i;
  }
}

/// Greedy rounds of drafting and verification as the reference made them, while the tokens agree. The reference kernels give its numbers for
/// ten rounds and more; where a sum in another order meets the edge of a code, the bounds of its README hold from there on.
TEST_P(Drafter, RoundsAgreeWithTheReference) {
  constexpr std::size_t kExactRounds = 10;
  std::size_t num_compared = 0;
  for (const char* name : {"len1", "len15", "len16", "len33", "len100", "len100_decoder_replay"}) {
    SCOPED_TRACE(name);
    const json::Value facts = read_json(kGoldens / "speculative" / (std::string(name) + ".json"));
    const GoldenFile golden(kGoldens / "speculative" / (std::string(name) + ".safetensors"));
    const auto first_logits = golden.values<float>("draft_logits_first_rounds");
    const std::vector<TokenId> ids = token_ids(integers(*facts.find("ids")));
    const auto vocab = static_cast<std::size_t>(model_.model->config().vocab_size);
    Sequence sequence(model_);
    if (!facts.find("keep")->is_null()) {
      sequence.keep_from = std::max(0, static_cast<std::int32_t>(std::ssize(ids)) - integer_at(facts, "keep"));
    }
    EXPECT_EQ(arg_max(sequence.prefill(ids)), integer_at(facts, "first_token"));
    sequence.keep_from = 0;

    // Before the first full window the reference's drafter also sees the empty slots of its ring, as rows of zeros: only tokens compare there.
    const std::int32_t window = model_.model->config().sliding_window;
    std::size_t round = 0;
    for (const json::Value& expected : *facts.find("rounds")->as_array()) {
      const TokenId anchor{integer_at(expected, "anchor")};
      const std::int32_t position = sequence.length();
      ASSERT_EQ(position, integer_at(expected, "position"));
      const model::DraftStart start{.slot = sequence.slot(), .position = position, .anchor = anchor};
      const Draft out = draft(model_, {&start, 1}, 5).front();
      const bool is_exact = GetParam() && round < kExactRounds;
      const auto drafts = integers(*expected.find("draft"));
      const auto& margins = *expected.find("draft_margins")->as_array();
      const auto& confidences = *expected.find("confidence")->as_array();
      bool same = true;
      for (std::size_t i = 0; i < drafts.size() && same; ++i) {
        same = out.tokens[i].value == drafts[i];
        EXPECT_TRUE(same || (!is_exact && margins[i].as_number()->as_double() < 1.0)) << "round " << round << ", draft " << i;
        if (position < window) {
          continue;
        }
        if (round < 3) {
          const auto golden_row = std::span(first_logits).subspan((round * 5 + i) * vocab, vocab);
          EXPECT_LT(rms_difference(out.logits[i], golden_row), is_exact ? 1e-3 : 0.35) << "round " << round << ", draft " << i;
        }
        const double confidence = 1.0 / (1.0 + std::exp(-static_cast<double>(out.confidence_logits[i])));
        EXPECT_NEAR(confidence, confidences[i].as_number()->as_double(), is_exact ? 2e-6 : 0.1) << "round " << round << ", draft " << i;
        ++num_compared;
      }
      // The reference's drafts are verified, so that one differing draft does not end the comparison.
      std::vector<TokenId> block{anchor};
      for (const std::int32_t token : drafts) {
        block.push_back({token});
      }
      const model::Chunk chunk = sequence.next(block, static_cast<std::int32_t>(block.size()));
      const std::span<const float> rows = model_.model->forward({&chunk, 1});
      std::int32_t accepted = 0;
      const auto choice = [&](std::int32_t row) { return arg_max(rows.subspan(static_cast<std::size_t>(row) * vocab, vocab)); };
      while (accepted < 5 && choice(accepted) == drafts[static_cast<std::size_t>(accepted)]) {
        ++accepted;
      }
      if (accepted != integer_at(expected, "accepted") || choice(accepted) != integer_at(expected, "next_token")) {
        EXPECT_FALSE(is_exact) << "round " << round;
        break;
      }
      sequence.rewind(position + 1 + accepted);
      ++round;
    }
  }
  EXPECT_GE(num_compared, GetParam() ? 250U : 100U);
}

TEST_P(Drafter, CompanyDoesNotMatter) {
  std::mt19937 random(5);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<model::DraftStart> starts;
  for (int i = 0; i < 7; ++i) {
    std::vector<TokenId> ids;
    for (std::size_t n = 1 + random() % 60; n > 0; --n) {
      ids.push_back({static_cast<std::int32_t>(random() % 1000)});
    }
    sequences.push_back(std::make_unique<Sequence>(model_));
    sequences.back()->prefill(ids);
    starts.push_back({.slot = sequences.back()->slot(), .position = sequences.back()->length(), .anchor = {static_cast<std::int32_t>(random() % 1000)}});
  }
  const std::vector<Draft> together = draft(model_, starts, 5);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Draft alone = draft(model_, std::span(starts).subspan(i, 1), 5).front();
    EXPECT_EQ(alone.tokens, together[i].tokens);
    EXPECT_EQ(alone.logits, together[i].logits);
    EXPECT_EQ(alone.confidence_logits, together[i].confidence_logits);
  }
}

/// Rows of the drafter's rings that the next draft pass sees.
std::vector<std::uint8_t> draft_context(const TestModel& model, const Sequence& sequence) {
  std::vector<std::uint8_t> out;
  const model::Config& config = model.model->config();
  for (std::int32_t ring = config.num_hidden_layers; ring < config.num_all_layers(); ++ring) {
    for (std::int32_t p = std::max(0, sequence.length() - config.sliding_window); p < sequence.length(); ++p) {
      const auto row = sequence.reader().window_row(ring, p);
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

/// Random drafts, accepted as far as chance will: every cache group and all logits as without drafts.
TEST_P(Drafter, RejectedDraftsLeaveNoTrace) {
  const std::uint64_t seed = 31;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto vocab = static_cast<std::size_t>(model_.model->config().vocab_size);
  const int num_rounds = GetParam() ? 1 : 6;
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<TokenId> text;
    for (int i = 0; i < 300; ++i) {
      text.push_back({static_cast<std::int32_t>(random() % 1000)});
    }
    const std::size_t num_prompt = 1 + random() % 140;
    const std::size_t num_tokens = num_prompt + (GetParam() ? 40U : 150U);
    Sequence plain(model_);
    Sequence drafted(model_);
    std::vector<float> last = plain.prefill(std::span(text).first(num_prompt));
    ASSERT_EQ(drafted.prefill(std::span(text).first(num_prompt)), last);
    while (static_cast<std::size_t>(drafted.length()) < num_tokens) {
      const auto at = static_cast<std::size_t>(drafted.length());
      const std::size_t num_drafts = random() % 6;
      const std::size_t accepted = random() % (num_drafts + 1);
      if (random() % 3 == 0) {
        const model::DraftStart start{.slot = drafted.slot(), .position = drafted.length(), .anchor = text[at]};
        (void)draft(model_, {&start, 1}, 1 + static_cast<std::int32_t>(random() % 5));
      }
      std::vector<TokenId> block(text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(at + 1 + accepted));
      while (block.size() < 1 + num_drafts) {
        block.push_back({static_cast<std::int32_t>(random() % 1000)});
      }
      const model::Chunk chunk = drafted.next(block, static_cast<std::int32_t>(block.size()));
      const std::span<const float> out = model_.model->forward({&chunk, 1});
      const std::vector<float> rows(out.begin(), out.end());
      drafted.rewind(static_cast<std::int32_t>(at + 1 + accepted));
      for (std::size_t i = 0; i <= accepted; ++i) {
        const std::vector<float> expected = plain.decode(text[at + i]);
        ASSERT_EQ(std::memcmp(expected.data(), rows.data() + i * vocab, vocab * sizeof(float)), 0) << "position " << at + i;
      }
      if (random() % 8 == 0) {
        ASSERT_EQ(drafted.reader().state_sha256(drafted.length()), plain.reader().state_sha256(plain.length())) << drafted.length();
        ASSERT_EQ(draft_context(model_, drafted), draft_context(model_, plain)) << drafted.length();
      }
    }
    EXPECT_EQ(drafted.reader().state_sha256(drafted.length()), plain.reader().state_sha256(plain.length()));
  }
}

}  // namespace
}  // namespace deepinfer::test

// Bit-exact laws of the whole forward: results do not depend on chunking,
// company, threads or what the caches held before.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backends/implementations.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny";

std::vector<TokenId> random_ids(std::mt19937& random, std::size_t count) {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back({static_cast<std::int32_t>(random() % 1000)});
  }
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Result100 {
  std::vector<float> logits;
  std::string state;
};

Result100 run_in(TestModel& model, std::span<const TokenId> ids, std::span<const std::size_t> cuts) {
  Sequence sequence(model);
  Result100 out;
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    out.logits = sequence.prefill(ids.subspan(at, cut - at));
    at = cut;
  }
  out.state = sequence.reader().state_sha256(sequence.length());
  return out;
}

class Laws : public ::testing::Test {
 protected:
  TestModel model_ = TestModel::load(kTiny, {.num_threads = 2});
};

/// The plain kernels obey the laws by construction: they treat one row after the other. One split and one companion show it.
TEST(ReferenceLaws, ASplitAndCompanyChangeNothing) {
  TestModel model = TestModel::load(kTiny, {.use_reference_kernels = true});
  std::mt19937 random(10);
  const std::vector<TokenId> ids = random_ids(random, 40);
  const Result100 whole = run_in(model, ids, std::vector<std::size_t>{40});
  const Result100 split = run_in(model, ids, std::vector<std::size_t>{17, 39, 40});
  EXPECT_TRUE(same_bits(split.logits, whole.logits));
  EXPECT_EQ(split.state, whole.state);
  Sequence own(model);
  Sequence other(model);
  const std::vector<TokenId> company = random_ids(random, 9);
  const std::vector<model::Chunk> chunks = {other.next(company, 1), own.next(ids, 1)};
  EXPECT_TRUE(same_bits(model.model->forward(chunks).subspan(1024), whole.logits));
}

TEST_F(Laws, EverySplitOfAHundredTokensEqualsTheWhole) {
  std::mt19937 random(11);
  const std::vector<TokenId> ids = random_ids(random, 100);
  const Result100 whole = run_in(model_, ids, std::vector<std::size_t>{100});
  for (std::size_t cut = 1; cut < 100; ++cut) {
    const Result100 split = run_in(model_, ids, std::vector<std::size_t>{cut, 100});
    ASSERT_TRUE(same_bits(split.logits, whole.logits)) << "cut at " << cut;
    ASSERT_EQ(split.state, whole.state) << "cut at " << cut;
  }
}

TEST_F(Laws, DecodingTokenByTokenEqualsPrefill) {
  std::mt19937 random(12);
  const std::vector<TokenId> ids = random_ids(random, 100);
  std::vector<std::size_t> cuts;
  for (std::size_t cut = 1; cut <= ids.size(); ++cut) {
    cuts.push_back(cut);
  }
  const Result100 whole = run_in(model_, ids, std::vector<std::size_t>{100});
  const Result100 single = run_in(model_, ids, cuts);
  EXPECT_TRUE(same_bits(single.logits, whole.logits));
  EXPECT_EQ(single.state, whole.state);
}

TEST_F(Laws, RandomSplitsOfLongerPromptsEqualTheWhole) {
  const std::size_t length = 1200;
  std::mt19937 random(13);
  const std::vector<TokenId> ids = random_ids(random, length);
  const Result100 whole = run_in(model_, ids, std::vector<std::size_t>{length});
  for (int round = 0; round < 4; ++round) {
    std::vector<std::size_t> cuts;
    for (std::size_t at = 0; at < length;) {
      at = std::min(length, at + 1 + random() % 200);
      cuts.push_back(at);
    }
    const Result100 split = run_in(model_, ids, cuts);
    ASSERT_TRUE(same_bits(split.logits, whole.logits)) << "round " << round;
    ASSERT_EQ(split.state, whole.state) << "round " << round;
  }
}

TEST_F(Laws, CompanyChangesNothing) {
  std::mt19937 random(14);
  const std::vector<TokenId> prompt = random_ids(random, 45);
  const std::vector<TokenId> continuation = random_ids(random, 6);
  std::vector<std::vector<float>> alone;
  {
    Sequence sequence(model_);
    alone.push_back(sequence.prefill(prompt));
    for (const TokenId token : continuation) {
      alone.push_back(sequence.decode(token));
    }
  }
  for (std::size_t companions = 1; companions <= 15U; ++companions) {
    std::vector<std::unique_ptr<Sequence>> others;
    for (std::size_t i = 0; i < companions; ++i) {
      others.push_back(std::make_unique<Sequence>(model_));
    }
    Sequence sequence(model_);
    const std::size_t place = random() % (companions + 1);
    for (std::size_t step = 0; step <= continuation.size(); ++step) {
      const std::span<const TokenId> own = step == 0 ? std::span(prompt) : std::span(continuation).subspan(step - 1, 1);
      std::vector<model::Chunk> chunks;
      std::vector<std::vector<TokenId>> inputs(companions);
      for (std::size_t i = 0; i < companions; ++i) {
        inputs[i] = random_ids(random, 1 + random() % 30);
      }
      for (std::size_t i = 0; i <= companions; ++i) {
        chunks.push_back(i == place ? sequence.next(own, 1)
                                    : others[i < place ? i : i - 1]->next(inputs[i < place ? i : i - 1], random() % 2 == 0 ? 1 : 0));
      }
      const std::span<const float> logits = model_.model->forward(chunks);
      std::size_t row = 0;
      for (std::size_t i = 0; i < place; ++i) {
        row += static_cast<std::size_t>(chunks[i].num_logit_rows);
      }
      ASSERT_TRUE(same_bits(logits.subspan(row * 1024, 1024), alone[step])) << companions << " companions, step " << step;
    }
  }
}

TEST_F(Laws, KeepingAllRowsEqualsExact) {
  std::mt19937 random(15);
  const std::vector<TokenId> ids = random_ids(random, 60);
  Sequence exact(model_);
  const std::vector<float> want = exact.prefill(ids);
  for (const std::int32_t keep_from : {0, -5}) {
    Sequence kept(model_);
    kept.keep_from = keep_from;
    EXPECT_TRUE(same_bits(kept.prefill(ids), want));
  }
}

TEST_F(Laws, BoundedReplayDoesNotDependOnChunks) {
  std::mt19937 random(16);
  for (const std::size_t length : {23, 40, 100}) {
    const std::vector<TokenId> ids = random_ids(random, length);
    Sequence whole(model_);
    whole.keep_from = static_cast<std::int32_t>(length) - 22;
    const std::vector<float> want = whole.prefill(ids);
    for (const std::size_t chunk : {1, 5, 21, 22, 64}) {
      Sequence split(model_);
      split.keep_from = whole.keep_from;
      ASSERT_TRUE(same_bits(split.prefill(ids, chunk), want)) << length << " in chunks of " << chunk;
      ASSERT_EQ(split.reader().state_sha256(split.length()), whole.reader().state_sha256(whole.length()));
    }
  }
}

// Values of kept rows are the same in both forms, and so is what they leave in the caches.
TEST_F(Laws, MaskedRowsEqualRowsThatLeave) {
  std::mt19937 random(18);
  const std::int32_t window = model_.model->config().sliding_window;
  for (std::size_t length = 1; length <= 72; ++length) {
    const std::vector<TokenId> ids = random_ids(random, length);
    const std::int32_t keep = window + static_cast<std::int32_t>(random() % 28);
    const auto any_chunk = [&] { return static_cast<std::size_t>(1 + random() % 72); };
    Sequence compact(model_);
    compact.keep_from = std::max(0, static_cast<std::int32_t>(length) - keep);
    Sequence mask(model_);
    mask.keep_from = compact.keep_from;
    mask.masks_rows = true;
    ASSERT_TRUE(same_bits(mask.prefill(ids, any_chunk()), compact.prefill(ids, any_chunk()))) << length << " tokens, " << keep << " kept";
    ASSERT_EQ(mask.reader().state_sha256(mask.length()), compact.reader().state_sha256(compact.length())) << length;
    compact.keep_from = 0;
    mask.keep_from = 0;
    ASSERT_TRUE(same_bits(mask.decode({5}), compact.decode({5}))) << length;
  }
}

TEST(ThreadLaws, AnyNumberOfThreadsGivesTheSameBits) {
  std::mt19937 random(17);
  const std::vector<TokenId> ids = random_ids(random, 150);
  std::vector<float> want;
  for (const std::int32_t threads : {1, 2, 3, 7}) {
    TestModel model = TestModel::load(kTiny, {.num_threads = threads});
    Sequence sequence(model);
    std::vector<float> logits = sequence.prefill(ids);
    const std::vector<float> decoded = sequence.decode({5});
    logits.insert(logits.end(), decoded.begin(), decoded.end());
    if (want.empty()) {
      want = logits;
    }
    ASSERT_TRUE(same_bits(logits, want)) << threads << " threads";
  }
}

/// Prompt in chunks, then decoded tokens, so that steps of one, few and many rows occur; each instruction set on one and on three threads.
TEST(InstructionSetLaws, EveryOneGivesTheSameBits) {
  std::mt19937 random(18);
  const std::vector<TokenId> ids = random_ids(random, 100);
  for (const std::filesystem::path& directory : {kTiny, std::filesystem::path(DEEPINFER_MODELS) / "nano"}) {
    std::vector<float> want;
    std::string want_state;
    for (const Implementation& implementation : fast_implementations()) {
      hwy::SetSupportedTargetsForTest(implementation.target);
      TestModel model =
          TestModel::load(directory, {.num_threads = implementation.num_threads, .best_unit = implementation.unit});
      hwy::SetSupportedTargetsForTest(0);
      Result100 run = run_in(model, ids, std::vector<std::size_t>{70, 76, 78, 99, 100});
      want = want.empty() ? run.logits : want;
      want_state = want_state.empty() ? run.state : want_state;
      EXPECT_TRUE(same_bits(run.logits, want)) << implementation.name << " " << directory;
      EXPECT_EQ(run.state, want_state) << implementation.name << " " << directory;
    }
  }
}

}  // namespace
}  // namespace deepinfer::test

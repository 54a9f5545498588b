// Images: the tower and the aligner against the reference's goldens, a forward with a span against its golden, and the bit-exact laws with
// images inside (bounds: the reference's README).
#include "model/deepseek_v41/vision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "model/deepseek_v41/binding.h"
#include "model/deepseek_v41/memory_plan.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny";
const std::filesystem::path kGoldens = std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens";

double relative_l2(std::span<const bf16> a, std::span<const bf16> b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(to_float(a[i])) - to_float(b[i]), 2);
    size += std::pow(static_cast<double>(to_float(b[i])), 2);
  }
  return a.size() == b.size() ? std::sqrt(difference / size) : INFINITY;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// Random pixels of a size.
struct Picture {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;

  [[nodiscard]] model::ImagePixels pixels() const { return {.width = width, .height = height, .rgb = rgb}; }
};

Picture random_picture(std::mt19937& random, std::int32_t width, std::int32_t height) {
  Picture out{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3)};
  std::ranges::generate(out.rgb, [&] { return static_cast<std::uint8_t>(random()); });
  return out;
}

class Vision : public ::testing::TestWithParam<bool> {
 protected:
  TestModel model_ = TestModel::load(kTiny, {.num_threads = 2, .use_reference_kernels = GetParam()});
  std::size_t hidden_ = static_cast<std::size_t>(model_.model->config().hidden_size);
};

INSTANTIATE_TEST_SUITE_P(Kernels, Vision, ::testing::Values(true, false),
                         [](const auto& kernels) { return kernels.param ? "Reference" : "Fast"; });

TEST_P(Vision, PatchesTowerAndAlignerAgreeWithTheReference) {
  const GoldenFile golden(kGoldens / "modules" / "vision.safetensors");
  const model::Config& config = model_.model->config();
  auto checkpoint = weights::Checkpoint::open(kTiny);
  ASSERT_TRUE(checkpoint.has_value());
  auto bound = model::bind_weights(*model_.device, *checkpoint, config, model::EngramTables::in_memory);
  auto tower = model::VisionTower::create(*model_.device, config);
  ASSERT_TRUE(bound.has_value() && tower.has_value());
  const std::unique_ptr<Stream> stream = model_.device->make_stream();
  struct Size {
    std::string name;
    std::int32_t width, height;
  };
  for (const Size& size : {Size{"70x56", 56, 70}, Size{"42x84", 84, 42}}) {
    SCOPED_TRACE(size.name);
    const auto rgb = golden.values<std::uint8_t>(size.name + ".rgb");
    const model::ImagePixels image{.width = size.width, .height = size.height, .rgb = rgb};
    EXPECT_EQ(model::image_patches(*config.vision, image), golden.values<bf16>(size.name + ".patches"));
    const std::vector<bf16> span = tower->encode(bound->weights.vision, image, *stream);
    const auto features = golden.values<bf16>(size.name + ".features");
    std::vector<bf16> own(features.size());
    stream->copy(own.data(), tower->features(), own.size() * sizeof(bf16));
    stream->synchronize();
    EXPECT_LE(relative_l2(own, features), 2e-3);
    const auto aligned = golden.values<bf16>(size.name + ".aligned");
    const auto columns = static_cast<std::size_t>((size.width + 41) / 42);
    std::vector<bf16> cells;
    for (std::size_t row = 0; row * columns * hidden_ < aligned.size(); ++row) {
      const auto first = span.begin() + static_cast<std::ptrdiff_t>((1 + row * (columns + 1)) * hidden_);
      cells.insert(cells.end(), first, first + static_cast<std::ptrdiff_t>(columns * hidden_));
    }
    EXPECT_LE(relative_l2(cells, aligned), 2e-3);
  }
}

TEST_P(Vision, APromptWithAnImageGivesTheReferencesLogitsAndTokens) {
  const GoldenFile golden(kGoldens / "model" / "image.safetensors");
  const json::Value facts = read_json(kGoldens / "model" / "image.json");
  const auto rgb = golden.values<std::uint8_t>("rgb");
  const std::vector<bf16> rows = model_.model->encode_image({.width = 56, .height = 70, .rgb = rgb});
  EXPECT_LE(relative_l2(rows, golden.values<bf16>("embedding_rows")), 2e-3);

  Sequence sequence(model_);
  sequence.images = {{.first_position = 3, .num_tokens = 8, .rows = rows.data()}};
  std::vector<float> logits = sequence.prefill(token_ids(integers(*facts.find("ids"))));
  const std::vector<float> all = golden.values<float>("full.logits");
  double squares = 0;
  for (std::size_t i = 0; i < 1024; ++i) {
    squares += std::pow(static_cast<double>(logits[i]) - all[i], 2);
  }
  EXPECT_LE(std::sqrt(squares / 1024), 0.35);
  const std::vector<std::int32_t> tokens = integers(*facts.find("full")->find("tokens"));
  const std::vector<double> margins = numbers(*facts.find("full")->find("margins"));
  EXPECT_EQ(arg_max(logits), tokens[0]);
  for (std::size_t step = 0; step < tokens.size() && arg_max(logits) == tokens[step]; ++step) {
    if (step + 1 < tokens.size()) {
      logits = sequence.decode({tokens[step]});
      EXPECT_TRUE(margins[step + 1] <= 1.0 || arg_max(logits) == tokens[step + 1]) << "step " << step + 1;
    }
  }
}

TEST_P(Vision, LayersWithAnImageAgreeAtTheLastPosition) {
  const GoldenFile golden(kGoldens / "model" / "image.safetensors");
  const json::Value facts = read_json(kGoldens / "model" / "image.json");
  const std::vector<bf16> rows = golden.values<bf16>("embedding_rows");
  // The first layers have not met enough quantisers to drift: there routing and Engram of image rows show.
  model_.model->set_layer_hook([&](const model::LayerOutput& output) {
    if (output.layer > 3) {
      return;
    }
    const auto want = golden.values<bf16>("last.layers." + std::to_string(output.layer) + ".streams");
    EXPECT_LE(relative_l2(output.streams.last(want.size()), want), 1e-2) << "layer " << output.layer;
  });
  Sequence sequence(model_);
  sequence.images = {{.first_position = 3, .num_tokens = 8, .rows = rows.data()}};
  sequence.prefill(token_ids(integers(*facts.find("ids"))));
}

/// A prompt with two images, 20 and 11 positions long.
struct Mixed {
  std::vector<bf16> first, second;
  std::vector<TokenId> ids;
  std::vector<model::ImageSpan> spans;
};

Mixed mixed_prompt(TestModel& model, std::mt19937& random) {
  const std::int32_t image = model.model->config().image_token_id;
  Mixed out{.first = model.model->encode_image(random_picture(random, 210, 126).pixels()),
            .second = model.model->encode_image(random_picture(random, 56, 98).pixels()),
            .ids = {},
            .spans = {}};
  const auto width = static_cast<std::size_t>(model.model->config().hidden_size);
  const auto text = [&](int count) {
    for (int i = 0; i < count; ++i) {
      out.ids.push_back({static_cast<std::int32_t>(random() % 1000)});
    }
  };
  const auto add = [&](const std::vector<bf16>& rows) {
    const auto count = static_cast<std::int32_t>(rows.size() / width);
    out.spans.push_back({.first_position = static_cast<std::int32_t>(out.ids.size()), .num_tokens = count, .rows = rows.data()});
    out.ids.insert(out.ids.end(), static_cast<std::size_t>(count), TokenId{image});
  };
  text(17);
  add(out.first);
  text(9);
  add(out.second);
  text(14);
  return out;
}

class VisionLaws : public ::testing::Test {
 protected:
  TestModel model_ = TestModel::load(kTiny, {.num_threads = 2});
};

TEST_F(VisionLaws, EverySplitOutsideSpansEqualsTheWhole) {
  std::mt19937 random(21);
  const Mixed prompt = mixed_prompt(model_, random);
  Sequence whole(model_);
  whole.images = prompt.spans;
  const std::vector<float> want = whole.prefill(prompt.ids);
  for (std::int32_t cut = 1; cut < static_cast<std::int32_t>(prompt.ids.size()); ++cut) {
    if (std::ranges::any_of(prompt.spans, [cut](const model::ImageSpan& span) {
          return cut > span.first_position && cut < span.first_position + span.num_tokens;
        })) {
      continue;
    }
    Sequence split(model_);
    split.images = prompt.spans;
    split.prefill(std::span(prompt.ids).first(static_cast<std::size_t>(cut)));
    const std::vector<float> logits = split.prefill(std::span(prompt.ids).subspan(static_cast<std::size_t>(cut)));
    ASSERT_TRUE(same_bits(logits, want)) << "cut at " << cut;
    ASSERT_EQ(split.reader().state_sha256(split.length()), whole.reader().state_sha256(whole.length())) << "cut at " << cut;
  }
}

TEST_F(VisionLaws, CompanyChangesNeitherTheImageNorTheText) {
  std::mt19937 random(22);
  const Mixed prompt = mixed_prompt(model_, random);
  std::vector<TokenId> text;
  for (int i = 0; i < 40; ++i) {
    text.push_back({static_cast<std::int32_t>(random() % 1000)});
  }
  Sequence image_alone(model_);
  image_alone.images = prompt.spans;
  const std::vector<float> want_image = image_alone.prefill(prompt.ids);
  Sequence text_alone(model_);
  const std::vector<float> want_text = text_alone.prefill(text);
  Sequence with_image(model_);
  with_image.images = prompt.spans;
  Sequence with_text(model_);
  const std::vector<model::Chunk> chunks = {with_text.next(text, 1), with_image.next(prompt.ids, 1)};
  const std::span<const float> logits = model_.model->forward(chunks);
  EXPECT_TRUE(same_bits(logits.first(1024), want_text));
  EXPECT_TRUE(same_bits(logits.subspan(1024), want_image));
}

TEST_F(VisionLaws, BoundedReplayWithImagesDoesNotDependOnChunks) {
  std::mt19937 random(23);
  const Mixed prompt = mixed_prompt(model_, random);
  const std::int32_t keep_from = static_cast<std::int32_t>(prompt.ids.size()) - 22;  // inside the second image
  Sequence whole(model_);
  whole.keep_from = keep_from;
  whole.images = prompt.spans;
  const std::vector<float> want = whole.prefill(prompt.ids);
  Sequence split(model_);
  split.keep_from = keep_from;
  split.images = prompt.spans;
  const auto cut = static_cast<std::size_t>(prompt.spans[1].first_position);
  split.prefill(std::span(prompt.ids).first(cut));
  EXPECT_TRUE(same_bits(split.prefill(std::span(prompt.ids).subspan(cut)), want));
}

TEST_F(VisionLaws, AnImageIsNotItsTokens) {
  std::mt19937 random(24);
  const Mixed prompt = mixed_prompt(model_, random);
  Sequence with_images(model_);
  with_images.images = prompt.spans;
  Sequence without(model_);
  EXPECT_FALSE(same_bits(with_images.prefill(prompt.ids), without.prefill(prompt.ids)));
}

/// A CPU that adds up what is taken from it.
class CountingDevice final : public Device {
 public:
  [[nodiscard]] const DeviceInfo& info() const override { return device_->info(); }
  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override {
    num_bytes += size_bytes;
    return device_->allocate(size_bytes);
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return device_->make_stream(); }
  [[nodiscard]] Ops& ops() override { return device_->ops(); }
  std::size_t num_bytes = 0;

 private:
  std::unique_ptr<Device> device_ = cpu::make_device({.num_threads = 1});
};

TEST(VisionMemory, ThePlanCountsWhatTheTowerTakes) {
  const auto config = model::load_config(kTiny);
  ASSERT_TRUE(config.has_value());
  CountingDevice device;
  ASSERT_TRUE(model::VisionTower::create(device, *config).has_value());
  EXPECT_EQ(device.num_bytes, model::vision_bytes(*config));
  model::Config without = *config;
  without.vision.reset();
  EXPECT_EQ(model::vision_bytes(without), 0U);
  const model::CacheSizes sizes{.max_rows = 10};
  const auto rows_of_images = std::size_t{10} * static_cast<std::size_t>(config->hidden_size) * sizeof(bf16);
  EXPECT_EQ(model::workspace_bytes(*config, sizes), model::workspace_bytes(without, sizes) + device.num_bytes + rows_of_images);
}

TEST(VisionThreads, AnyNumberOfThreadsEncodesTheSameBits) {
  std::mt19937 random(25);
  const Picture picture = random_picture(random, 294, 252);
  std::vector<bf16> want;
  for (const std::int32_t threads : {1, 2, 5}) {
    TestModel model = TestModel::load(kTiny, {.num_threads = threads});
    const std::vector<bf16> rows = model.model->encode_image(picture.pixels());
    if (want.empty()) {
      want = rows;
    }
    EXPECT_EQ(rows, want) << threads << " threads";
  }
}

}  // namespace
}  // namespace deepinfer::test

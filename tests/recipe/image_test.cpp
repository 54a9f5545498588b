// Images: the recorded answers of the official component, its pixels, and files that mean harm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "recipe/image/decode.h"
#include "recipe/image/prepare.h"
#include "recipe/official_answers.h"
#include "recipe/probe.h"
#include "recipe/test_files.h"

namespace deepinfer::recipe {
namespace {

using testing::read_json_lines;
using testing::read_text_file;
using testing::recipe_data;

constexpr std::int32_t kMaxSide = 8192;

std::filesystem::path image_file(std::string_view name) { return recipe_data("images") / name; }

bool is_near(const json::Value& expected, const json::Value& answer) {
  constexpr std::int64_t kTolerance = 8;  // of the protocol: the official output is lossy
  const json::Array* cells = expected.as_array();
  const json::Array* own_cells = answer.as_array();
  if (cells == nullptr || own_cells == nullptr) {
    const json::Number* number = expected.as_number();
    const json::Number* own_number = answer.as_number();
    return number != nullptr && own_number != nullptr && std::abs(*number->as_int64() - *own_number->as_int64()) <= kTolerance;
  }
  return std::ranges::equal(*cells, *own_cells, is_near);
}

/// Colours that are near enough become those that are expected.
void settle_colours(const json::Value& expected, json::Value& answer) {
  if (json::Object* object = answer.as_object()) {
    for (auto& [key, member] : *object) {
      const json::Value* other = expected.find(key);
      if (other != nullptr && key == "grid" && is_near(*other, member)) {
        member = *other;
      } else if (other != nullptr) {
        settle_colours(*other, member);
      }
    }
  } else if (json::Array* array = answer.as_array()) {
    const json::Array* others = expected.as_array();
    for (std::size_t i = 0; others != nullptr && i < std::min(array->size(), others->size()); ++i) {
      settle_colours((*others)[i], (*array)[i]);
    }
  }
}

TEST(OfficialCases, ImagesAreEqual) {
  int num_cases = 0;
  for (const json::Value& record : read_json_lines(recipe_data("oracle") / "image.jsonl.gz")) {
    const std::string line = answer_probe_line({}, json::to_text(*record.find("input")));
    json::Value answer = *json::parse(line);
    const json::Value& expected = *record.find("expected");
    settle_colours(expected, answer);
    const std::optional<std::string> problem = testing::json_difference(expected, answer, "answer");
    EXPECT_FALSE(problem.has_value()) << *record.find("name")->as_string() << ": " << problem->substr(0, 600);
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 198);
}

/// Mean difference of all values of two images of one size.
double mean_difference(const RgbImage& a, const RgbImage& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) {
    sum += std::abs(a.rgb[i] - b.rgb[i]);
  }
  return sum / static_cast<double>(a.rgb.size());
}

TEST(PrepareImage, PixelsAreTheOfficialOnesButForTheirLossyStorage) {
  constexpr double kLoss = 2.0;  // twice what the WebP of noise loses; another resampling differs by 5 and more
  for (const std::string name : {"stripes", "waves", "thin", "small"}) {
    for (const auto& [detail, word] : {std::pair(ImageDetail::high, "high"), std::pair(ImageDetail::low, "low")}) {
      const auto expected = decode_image(read_text_file(image_file(name + "." + word + ".webp")), 20000);
      const auto prepared = prepare_image(read_text_file(image_file(name + ".png")), {.detail = detail}, "");
      ASSERT_TRUE(expected.has_value() && prepared.has_value()) << name;
      ASSERT_EQ(prepared->pixels.size, expected->size) << name << " " << word;
      EXPECT_LT(mean_difference(prepared->pixels, *expected), kLoss) << name << " " << word;
    }
  }
}

TEST(PrepareImage, NoSizeTakesMoreThanItsTokens) {
  for (std::int32_t width = 1; width <= kMaxSide; width = width * 5 / 4 + 1) {
    for (std::int32_t height = 1; height <= kMaxSide; height = height * 5 / 4 + 1) {
      const PixelSize size = preprocessed_size({.width = width, .height = height});
      EXPECT_LE(image_tokens_of_stored(size), ImageSizing{}.max_tokens) << width << "x" << height;
      EXPECT_EQ(size.width % ImageSizing{}.patch_pixels, 0) << width << "x" << height;
      EXPECT_EQ(size.height % ImageSizing{}.patch_pixels, 0) << width << "x" << height;
    }
  }
}

TEST(PrepareImage, OtherModelsCutOtherwise) {
  constexpr ImageSizing kSmall{.patch_pixels = 14, .cell_pixels = 42, .max_tokens = 64, .min_pixels = 3136};
  for (std::int32_t width = 1; width <= kMaxSide; width = width * 3 / 2 + 1) {
    for (std::int32_t height = 1; height <= kMaxSide; height = height * 3 / 2 + 1) {
      const PixelSize size = preprocessed_size({.width = width, .height = height}, kSmall);
      EXPECT_LE(image_tokens(size, kSmall), 64) << width << "x" << height;
      EXPECT_EQ(size.width % 14 + size.height % 14, 0) << width << "x" << height;
    }
  }
  const auto prepared = prepare_image(read_text_file(image_file("small.png")), {.sizing = kSmall}, "");
  ASSERT_TRUE(prepared.has_value());
  EXPECT_EQ(prepared->num_tokens, image_tokens(prepared->pixels.size, kSmall));
  EXPECT_LE(prepared->num_tokens, 64);
}

TEST(DecodeImage, HugeSidesAreRefusedBeforeAnyPixel) {
  std::string png = read_text_file(image_file("small.png"));
  png.replace(16, 8, std::string("\x00\x00\x80\x00\x00\x00\x80\x00", 8));  // 32768 x 32768, as a bomb says
  const auto image = decode_image(png, kMaxSide);
  ASSERT_FALSE(image.has_value());
  EXPECT_NE(image.error(), ImageError::Kind::empty_image) << "the header alone decides";
  std::string gif = "GIF89a";
  gif += std::string("\x10\x00\x10\x00\x80\x00\x00\x00\x00\x00\xFF\xFF\xFF", 13);
  gif += std::string("\x2C\x00\x00\x00\x00\xFF\xFF\xFF\xFF\x00\x02", 11);  // a frame of 65535 x 65535
  EXPECT_EQ(decode_image(gif, kMaxSide).error(), ImageError::Kind::dimensions_too_large);
}

TEST(DecodeImage, EveryBeginningOfAFileIsAnErrorOrAnImage) {
  for (const std::string_view name : {"small.png", "small.high.webp"}) {
    const std::string file = read_text_file(image_file(name));
    for (std::size_t length = 0; length < file.size(); length += 1 + file.size() / 200) {
      EXPECT_FALSE(decode_image(file.substr(0, length), kMaxSide).has_value()) << name << " " << length;
    }
    EXPECT_TRUE(decode_image(file, kMaxSide).has_value()) << name;
  }
}

TEST(DecodeImage, ThreeLettersMakeAFileThatIsMeantAsGif) {
  for (const std::string_view bytes : {"GIF", "GIF7", "GIFxyz"}) {
    EXPECT_EQ(decode_image(bytes, 1000).error(), ImageError::Kind::decode) << bytes;
  }
  EXPECT_EQ(decode_image("GI", 1000).error(), ImageError::Kind::unsupported_media_type);
}

TEST(DecodeImage, AlphaLiesOverWhite) {
  // 1 x 1 GIF whose only colour is transparent.
  std::string gif = "GIF89a";
  gif += std::string("\x01\x00\x01\x00\x80\x00\x00\x0A\x14\x1E\x00\x00\x00", 13);
  gif += std::string("\x21\xF9\x04\x01\x00\x00\x00\x00", 8);
  gif += std::string("\x2C\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3B", 16);
  const auto image = decode_image(gif, kMaxSide);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->rgb, (std::vector<std::uint8_t>{255, 255, 255}));
}

TEST(PrepareImages, OnlyACallThatSucceedsCounts) {
  const ImageSource good{.kind = ImageKind::bytes, .data = read_text_file(image_file("small.png")), .path = "a"};
  const ImageSource bad{.kind = ImageKind::bytes, .data = "BM", .path = "b"};
  const std::vector<const ImageSource*> both{&good, &bad};
  ImageQuota quota;
  const auto refused = prepare_images(both, {}, {}, quota);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().message.starts_with("b.image[0]: ")) << refused.error().message;
  EXPECT_EQ(quota.num_images, 0);
  const std::vector<const ImageSource*> one{&good};
  EXPECT_TRUE(prepare_images(one, {}, {}, quota).has_value());
  EXPECT_EQ(quota.num_images, 1);
  EXPECT_EQ(quota.num_bytes, good.data.size());
}

TEST(PrepareImages, LinksComeFromTheCallersFetch) {
  const ImageSource link{.kind = ImageKind::url, .data = "https://example.com/a.png", .path = "p"};
  const std::vector<const ImageSource*> sources{&link};
  ImageQuota quota;
  const auto fetched = prepare_images(
      sources, {},
      [](const std::string& url, std::size_t) -> std::expected<std::string, ImageError::Kind> {
        EXPECT_EQ(url, "https://example.com/a.png");
        return read_text_file(image_file("small.png"));
      },
      quota);
  EXPECT_TRUE(fetched.has_value());
  const auto refused = prepare_images(sources, {}, {}, quota);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().retryable);
  EXPECT_EQ(refused.error().message, "p.image[0]: Failed to download image from https://example.com/a.png");
}

}  // namespace
}  // namespace deepinfer::recipe

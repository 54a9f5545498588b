#include "recipe/image_probe.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recipe/base64.h"
#include "recipe/image/prepare.h"
#include "recipe/probe_values.h"

namespace deepinfer::recipe {

namespace {

using json::Array;
using json::Object;
using json::Value;
using Outcome = std::expected<Value, Value>;

std::string_view name_of(ImageError::Kind kind) {
  switch (kind) {
    case ImageError::Kind::empty_image:
      return "EmptyImage";
    case ImageError::Kind::decode:
      return "Decode";
    case ImageError::Kind::unsupported_media_type:
      return "UnsupportedMediaType";
    case ImageError::Kind::dimensions_too_large:
      return "ImageDimensionsTooLarge";
    case ImageError::Kind::image_too_large:
      return "ImageTooLarge";
    case ImageError::Kind::total_size_too_large:
      return "TotalSizeTooLarge";
    case ImageError::Kind::too_many_images:
      return "TooManyImages";
    case ImageError::Kind::invalid_data_url:
      return "InvalidDataUrl";
    case ImageError::Kind::invalid_url:
      return "InvalidUrl";
    case ImageError::Kind::url_too_long:
      return "UrlTooLong";
    case ImageError::Kind::fetch:
      return "Fetch";
  }
  std::unreachable();
}

Value error_json(const ImageError& error) {
  return Object{{"stage", "image"}, {"kind", name_of(error.kind)}, {"retryable", error.retryable}, {"message", error.message}};
}

std::unexpected<Value> bad_line(std::string_view message) {
  return std::unexpected(Value(Object{{"stage", "setup"}, {"message", message}}));
}

std::int32_t integer_or(const Value& line, std::string_view key, std::int32_t otherwise) {
  const Value* value = line.find(key);
  const json::Number* number = value == nullptr ? nullptr : value->as_number();
  return number == nullptr ? otherwise : static_cast<std::int32_t>(number->as_int64().value_or(otherwise));
}

/// Mean colour of one of 4 x 4 cells, rounded.
Array cell_colour(const RgbImage& image, std::size_t column, std::size_t row) {
  constexpr std::size_t kCells = 4;
  const auto width = static_cast<std::size_t>(image.size.width);
  const auto height = static_cast<std::size_t>(image.size.height);
  std::array<std::uint64_t, 3> sums{};
  std::uint64_t count = 0;
  for (std::size_t y = row * height / kCells; y < (row + 1) * height / kCells; ++y) {
    for (std::size_t x = column * width / kCells; x < (column + 1) * width / kCells; ++x, ++count) {
      for (std::size_t channel = 0; channel < 3; ++channel) {
        sums[channel] += image.rgb[3 * (y * width + x) + channel];
      }
    }
  }
  Array out;
  for (const std::uint64_t sum : sums) {
    out.emplace_back((sum + count / 2) / count);
  }
  return out;
}

Value image_json(const PreparedImage& image) {
  Array grid;
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t column = 0; column < 4; ++column) {
      grid.emplace_back(cell_colour(image.pixels, column, row));
    }
  }
  return Object{
      {"width", image.pixels.size.width}, {"height", image.pixels.size.height}, {"grid", std::move(grid)}, {"tokens", image.num_tokens}};
}

Outcome size_operation(const Value& size) {
  const Array* sides = size.as_array();
  std::array<std::int32_t, 2> numbers{};
  for (std::size_t i = 0; sides != nullptr && i < numbers.size() && i < sides->size(); ++i) {
    const json::Number* number = (*sides)[i].as_number();
    numbers[i] = number == nullptr ? 0 : static_cast<std::int32_t>(number->as_int64().value_or(0));
  }
  if (numbers[0] < 1 || numbers[1] < 1) {
    return bad_line("`size` is two positive integers");
  }
  return Object{{"tokens", image_tokens_of_stored({.width = numbers[0], .height = numbers[1]})}};
}

Outcome file_operation(const Value& line) {
  const Value* encoded = line.find("bytes_base64");
  if (encoded == nullptr || encoded->as_string() == nullptr) {
    return bad_line("an image line needs `size`, `sources` or `bytes_base64`");
  }
  const std::optional<std::string> bytes = decode_forgiving_base64(*encoded->as_string());
  const std::optional<ImageDetail> detail = read_image_detail(line.find("detail"));
  if (!bytes || !detail) {
    return bad_line("`bytes_base64` or `detail` is malformed");
  }
  constexpr std::int32_t kMaxSide = 8000;  // of the protocol
  const PrepareOptions options{.detail = *detail,
                               .max_side_pixels = integer_or(line, "max_dimension_px", kMaxSide),
                               .low_detail_pixels = integer_or(line, "low_detail_max_dimension_px", 512)};
  const std::expected<PreparedImage, ImageError> image = prepare_image(*bytes, options, "");
  return image ? Outcome(image_json(*image)) : std::unexpected(error_json(image.error()));
}

/// One call that resolves a group of sources.
Object group_json(const std::vector<ImageSource>& group, ImageQuota& quota) {
  std::vector<const ImageSource*> sources;
  for (const ImageSource& source : group) {
    sources.push_back(&source);
  }
  Object out;
  const std::expected<std::vector<PreparedImage>, ImageError> prepared = prepare_images(sources, ImageLimits{}, {}, quota);
  if (!prepared) {
    out.append("error", error_json(prepared.error()));
  } else {
    Array images;
    std::int64_t adjustment = 0;  // positions beyond one for each placeholder
    for (const PreparedImage& image : *prepared) {
      images.push_back(image_json(image));
      adjustment += image.num_tokens - 1;
    }
    out.append("images", std::move(images));
    out.append("token_adjustment", adjustment);
  }
  out.append("quota", Object{{"image_count", quota.num_images}, {"byte_size", std::uint64_t{quota.num_bytes}}});
  return out;
}

Outcome sources_operation(const Value& groups) {
  ImageQuota quota;
  Array out;
  for (const Value& group : groups.as_array() != nullptr ? *groups.as_array() : Array{}) {
    const Result<std::vector<ImageSource>> sources = read_image_sources(group);
    if (!sources) {
      return bad_line(sources.error().message);
    }
    out.emplace_back(group_json(*sources, quota));
  }
  return Object{{"groups", std::move(out)}};
}

}  // namespace

std::expected<Value, Value> run_image_probe(const Value& line) {
  if (const Value* groups = line.find("sources")) {
    return sources_operation(*groups);
  }
  if (const Value* size = line.find("size")) {
    return size_operation(*size);
  }
  return file_operation(line);
}

}  // namespace deepinfer::recipe

#include "recipe/image/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace deepinfer::recipe {

namespace {

constexpr std::size_t kChannels = 3;
constexpr std::uint8_t kGrey = 127;
constexpr std::size_t kTaps = 4;
constexpr int kWeightBits = 11;

/// One output position: where its four source pixels lie and what they count.
struct Tap {
  std::array<std::int32_t, kTaps> sources;
  std::array<std::int32_t, kTaps> weights;  // sum about 2^11
};

std::array<std::int32_t, kTaps> cubic_weights(float x) {
  constexpr float kA = -0.75F;
  constexpr float kOne = 1 << kWeightBits;
  const float rest = 1.0F - x;
  std::array<float, kTaps> weights;
  weights[0] = ((kA * (x + 1.0F) - 5.0F * kA) * (x + 1.0F) + 8.0F * kA) * (x + 1.0F) - 4.0F * kA;
  weights[1] = ((kA + 2.0F) * x - (kA + 3.0F)) * x * x + 1.0F;
  weights[2] = ((kA + 2.0F) * rest - (kA + 3.0F)) * rest * rest + 1.0F;
  weights[3] = 1.0F - weights[0] - weights[1] - weights[2];
  std::array<std::int32_t, kTaps> out;
  std::ranges::transform(weights, out.begin(), [](float weight) { return static_cast<std::int32_t>(std::lrint(weight * kOne)); });
  return out;
}

std::vector<Tap> taps_of(std::int32_t from, std::int32_t to) {
  const double scale = static_cast<double>(from) / to;
  std::vector<Tap> taps(static_cast<std::size_t>(to));
  for (std::int32_t i = 0; i < to; ++i) {
    const auto centre = static_cast<float>((i + 0.5) * scale - 0.5);
    const auto first = static_cast<std::int32_t>(std::floor(centre));
    Tap& tap = taps[static_cast<std::size_t>(i)];
    tap.weights = cubic_weights(centre - static_cast<float>(first));
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(kTaps); ++k) {
      tap.sources[static_cast<std::size_t>(k)] = std::clamp(first - 1 + k, 0, from - 1);
    }
  }
  return taps;
}

/// Rows of the source stretched to the new width, made when they are first asked for. The last four are kept.
class StretchedRows {
 public:
  StretchedRows(const RgbImage& image, std::int32_t width) : image_(image), taps_(taps_of(image.size.width, width)) {}

  /// [width, 3] values times 2^11. Valid until four other rows were asked for.
  std::span<const std::int32_t> row(std::int32_t y) {
    Slot& slot = slots_[static_cast<std::size_t>(y) % kTaps];
    if (slot.y != y) {
      slot.y = y;
      stretch(y, slot.values);
    }
    return slot.values;
  }

 private:
  struct Slot {
    std::int32_t y = -1;
    std::vector<std::int32_t> values;
  };

  void stretch(std::int32_t y, std::vector<std::int32_t>& out) const {
    const std::uint8_t* row = image_.rgb.data() + kChannels * static_cast<std::size_t>(image_.size.width) * static_cast<std::size_t>(y);
    out.resize(kChannels * taps_.size());
    for (std::size_t x = 0; x < taps_.size(); ++x) {
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        std::int32_t sum = 0;
        for (std::size_t k = 0; k < kTaps; ++k) {
          sum += taps_[x].weights[k] * row[kChannels * static_cast<std::size_t>(taps_[x].sources[k]) + channel];
        }
        out[kChannels * x + channel] = sum;
      }
    }
  }

  const RgbImage& image_;
  std::vector<Tap> taps_;
  std::array<Slot, kTaps> slots_;
};

/// Writes the image, stretched to `size`, at (left, top) of the canvas.
void draw(const RgbImage& image, PixelSize size, PixelSize at, RgbImage& canvas) {
  constexpr std::int32_t kHalf = 1 << (2 * kWeightBits - 1);
  StretchedRows rows(image, size.width);
  const std::vector<Tap> taps = taps_of(image.size.height, size.height);
  for (std::size_t y = 0; y < taps.size(); ++y) {
    std::array<std::span<const std::int32_t>, kTaps> sources;
    for (std::size_t k = 0; k < kTaps; ++k) {
      sources[k] = rows.row(taps[y].sources[k]);
    }
    const std::size_t first_pixel =
        static_cast<std::size_t>(canvas.size.width) * (static_cast<std::size_t>(at.height) + y) + static_cast<std::size_t>(at.width);
    std::uint8_t* out = canvas.rgb.data() + kChannels * first_pixel;
    for (std::size_t i = 0; i < sources[0].size(); ++i) {
      std::int32_t sum = kHalf;
      for (std::size_t k = 0; k < kTaps; ++k) {
        sum += taps[y].weights[k] * sources[k][i];
      }
      out[i] = static_cast<std::uint8_t>(std::clamp(sum >> (2 * kWeightBits), 0, 255));
    }
  }
}

/// Source pixels that one output pixel covers, with the share of each; only the first and the last can be parts of pixels.
struct Span {
  std::int32_t first = 0;
  std::vector<float> shares;  // sum 1
};

std::vector<Span> spans_of(std::int32_t from, std::int32_t to) {
  const double scale = static_cast<double>(from) / to;
  std::vector<Span> spans(static_cast<std::size_t>(to));
  for (std::int32_t i = 0; i < to; ++i) {
    const double begin = i * scale;
    const double end = std::min((i + 1) * scale, static_cast<double>(from));
    Span& span = spans[static_cast<std::size_t>(i)];
    span.first = static_cast<std::int32_t>(begin);
    for (std::int32_t k = span.first; k < from && k < end; ++k) {
      const double covered = std::min(end, k + 1.0) - std::max(begin, static_cast<double>(k));
      span.shares.push_back(static_cast<float>(covered / (end - begin)));
    }
  }
  return spans;
}

std::array<float, kChannels> mean_colour(const RgbImage& image, const Span& column, const Span& row) {
  std::array<float, kChannels> sums{};
  for (std::size_t y = 0; y < row.shares.size(); ++y) {
    const std::size_t first_pixel = (static_cast<std::size_t>(row.first) + y) * static_cast<std::size_t>(image.size.width);
    const std::uint8_t* pixel = image.rgb.data() + kChannels * (first_pixel + static_cast<std::size_t>(column.first));
    for (const float share : column.shares) {
      for (float& sum : sums) {
        sum += row.shares[y] * share * static_cast<float>(*pixel++);
      }
    }
  }
  return sums;
}

RgbImage grey_canvas(PixelSize size) {
  const std::size_t num_pixels = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  return {.size = size, .rgb = std::vector<std::uint8_t>(kChannels * num_pixels, kGrey)};
}

}  // namespace

RgbImage shrink(const RgbImage& image, PixelSize size) {
  if (image.size == size) {
    return image;
  }
  const std::vector<Span> columns = spans_of(image.size.width, size.width);
  const std::vector<Span> rows = spans_of(image.size.height, size.height);
  RgbImage out = grey_canvas(size);
  std::uint8_t* pixel = out.rgb.data();
  for (const Span& row : rows) {
    for (const Span& column : columns) {
      const std::array<float, kChannels> mean = mean_colour(image, column, row);
      pixel = std::ranges::transform(mean, pixel, [](float value) { return static_cast<std::uint8_t>(std::lrint(value)); }).out;
    }
  }
  return out;
}

RgbImage fit_on_canvas(const RgbImage& image, PixelSize canvas) {
  if (image.size == canvas) {
    return image;
  }
  const double scale =
      std::min(static_cast<double>(canvas.width) / image.size.width, static_cast<double>(canvas.height) / image.size.height);
  const auto fit = [scale](std::int32_t side, std::int32_t limit) {
    return std::clamp(static_cast<std::int32_t>(std::lrint(side * scale)), 1, limit);  // half to even
  };
  const PixelSize content{.width = fit(image.size.width, canvas.width), .height = fit(image.size.height, canvas.height)};
  const auto centre = [](std::int32_t gap) { return static_cast<std::int32_t>(std::lrint(gap / 2.0)); };  // half to even
  const PixelSize at{.width = centre(canvas.width - content.width), .height = centre(canvas.height - content.height)};
  RgbImage out = grey_canvas(canvas);
  draw(image, content, at, out);
  return out;
}

}  // namespace deepinfer::recipe

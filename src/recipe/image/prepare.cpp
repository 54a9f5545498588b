#include "recipe/image/prepare.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "recipe/data_url.h"
#include "recipe/image/decode.h"
#include "recipe/image/resize.h"
#include "recipe/image_source.h"

namespace deepinfer::recipe {

namespace {

using Kind = ImageError::Kind;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

std::unexpected<ImageError> refuse(Kind kind, std::string message) {
  return std::unexpected(ImageError{.kind = kind, .retryable = kind == Kind::fetch, .message = std::move(message)});
}

/// "P.image[0]", "image[0]" without a path.
std::string image_place(std::string_view path) { return std::string(path) + (path.empty() ? "" : ".") + "image[0]"; }

std::unexpected<ImageError> refuse_file(Kind kind, std::string_view path) {
  return refuse(kind, image_place(path) +
                          ": You have uploaded an unsupported image. Please make sure your image is valid and has one of the following "
                          "formats: webp, png, jpeg, and gif.");
}

/// An absolute http or https link with a host.
bool is_web_url(std::string_view url) {
  for (const std::string_view scheme : {"http:", "https:"}) {
    if (url.size() > scheme.size() && std::ranges::equal(url.substr(0, scheme.size()), scheme, {}, [](char c) {
          return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
        })) {
      const std::size_t host = url.find_first_not_of("/\\", scheme.size());
      return host != std::string_view::npos && url[host] != '?' && url[host] != '#';
    }
  }
  return false;
}

std::expected<std::string, ImageError> read_data_url(const ImageSource& source, const ImageLimits& limits) {
  const std::optional<DataUrl> url = parse_data_url(source.data);
  if (!url) {
    return refuse_file(Kind::invalid_data_url, source.path);
  }
  if (!is_image_media_type(url->media_type)) {
    return refuse_file(Kind::unsupported_media_type, source.path);
  }
  // No encoding is shorter than its bytes, and none makes more than four characters of three bytes plus blanks that are worth decoding.
  if (url->body.size() / 4 > limits.max_image_bytes) {
    return refuse(Kind::image_too_large, image_place(source.path) + ": image file size exceeds limit " +
                                             std::to_string(limits.max_image_bytes / kMegabyte) + " MB");
  }
  std::optional<std::string> bytes = decode_body(*url);
  return bytes ? std::expected<std::string, ImageError>(std::move(*bytes)) : refuse_file(Kind::invalid_data_url, source.path);
}

std::expected<std::string, ImageError> read_link(const ImageSource& source, const ImageLimits& limits, const FetchImage& fetch) {
  if (source.data.size() > kMaxLinkBytes) {
    return refuse(Kind::url_too_long, source.path + ": external link length " + std::to_string(source.data.size()) +
                                          " too long, max link length " + std::to_string(kMaxLinkBytes));
  }
  if (!is_web_url(source.data)) {
    return refuse(Kind::invalid_url, source.path + ": invalid url: \"" + source.data + "\"");
  }
  std::expected<std::string, Kind> bytes = fetch ? fetch(source.data, limits.max_image_bytes) : std::unexpected(Kind::fetch);
  if (!bytes && bytes.error() == Kind::fetch) {
    return refuse(Kind::fetch, image_place(source.path) + ": Failed to download image from " + source.data);
  }
  return bytes ? std::expected<std::string, ImageError>(std::move(*bytes)) : refuse_file(bytes.error(), source.path);
}

/// The file of one source: not empty, not too large.
std::expected<std::string, ImageError> read_source(const ImageSource& source, const ImageLimits& limits, const FetchImage& fetch) {
  std::expected<std::string, ImageError> bytes;
  switch (source.kind) {
    case ImageKind::data_url:
      bytes = read_data_url(source, limits);
      break;
    case ImageKind::url:
      bytes = read_link(source, limits, fetch);
      break;
    case ImageKind::bytes:
      bytes = source.data;
      break;
  }
  if (bytes && bytes->empty()) {
    return refuse_file(Kind::empty_image, source.path);
  }
  if (bytes && bytes->size() > limits.max_image_bytes) {
    return refuse(Kind::image_too_large, image_place(source.path) + ": image file size exceeds limit " +
                                             std::to_string(limits.max_image_bytes / kMegabyte) + " MB");
  }
  return bytes;
}

std::expected<std::vector<std::string>, ImageError> read_sources(std::span<const ImageSource* const> sources, const ImageLimits& limits,
                                                                 const FetchImage& fetch, ImageQuota& quota) {
  std::vector<std::string> files;
  for (const ImageSource* source : sources) {
    std::expected<std::string, ImageError> bytes = read_source(*source, limits, fetch);
    if (!bytes) {
      return std::unexpected(std::move(bytes.error()));
    }
    quota.num_bytes += bytes->size();
    if (quota.num_bytes > limits.max_total_bytes) {
      return refuse(Kind::total_size_too_large, source->path + ": Total image size exceeds the limit: max " +
                                                    std::to_string(limits.max_total_bytes / kMegabyte) + " MB per request, got " +
                                                    std::to_string(quota.num_bytes / kMegabyte) + " MB");
    }
    files.push_back(std::move(*bytes));
  }
  return files;
}

}  // namespace

std::expected<PreparedImage, ImageError> prepare_image(std::string_view bytes, const PrepareOptions& options, std::string_view path) {
  std::expected<RgbImage, Kind> image = decode_image(bytes, options.max_side_pixels);
  if (!image) {
    return refuse_file(image.error(), path);
  }
  if (options.detail == ImageDetail::low) {
    *image = shrink(*image, bounded_size(image->size, options.low_detail_pixels));
  }
  RgbImage pixels = fit_on_canvas(*image, preprocessed_size(image->size, options.sizing));
  const std::int64_t num_tokens = image_tokens_of_stored(pixels.size, options.sizing);
  return PreparedImage{.pixels = std::move(pixels), .num_tokens = num_tokens};
}

RgbImage shown_pixels(PreparedImage&& image, const ImageSizing& sizing) {
  const PixelSize size = shown_size(image.pixels.size, sizing);
  return size == image.pixels.size ? std::move(image.pixels) : fit_on_canvas(image.pixels, size);
}

std::expected<std::vector<PreparedImage>, ImageError> prepare_images(std::span<const ImageSource* const> sources, const ImageLimits& limits,
                                                                     const FetchImage& fetch, ImageQuota& quota) {
  ImageQuota used = quota;
  const auto room = static_cast<std::size_t>(std::max(0, limits.max_images - used.num_images));
  if (sources.size() > room) {
    return refuse(Kind::too_many_images, sources[room]->path + ": Too many images: max " + std::to_string(limits.max_images) +
                                             " images per request, got " + std::to_string(limits.max_images + 1));
  }
  std::expected<std::vector<std::string>, ImageError> files = read_sources(sources, limits, fetch, used);
  if (!files) {
    return std::unexpected(std::move(files.error()));
  }
  std::vector<PreparedImage> out;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const PrepareOptions options{.detail = sources[i]->detail, .max_side_pixels = limits.max_side_pixels, .sizing = limits.sizing};
    std::expected<PreparedImage, ImageError> image = prepare_image((*files)[i], options, sources[i]->path);
    if (!image) {
      return std::unexpected(std::move(image.error()));
    }
    out.push_back(std::move(*image));
  }
  used.num_images += static_cast<std::int32_t>(sources.size());
  quota = used;
  return out;
}

}  // namespace deepinfer::recipe

#include "recipe/image_source.h"

#include <algorithm>
#include <utility>

#include "recipe/data_url.h"

namespace deepinfer::recipe {

bool is_link(std::string_view url) {
  constexpr std::string_view kScheme = "http";
  return url.size() >= kScheme.size() &&
         std::ranges::equal(url.substr(0, kScheme.size()), kScheme, [](char a, char b) { return (a | 0x20) == b; });
}

bool is_image_media_type(std::string_view media_type) {
  return media_type == "image/png" || media_type == "image/jpeg" || media_type == "image/jpg" || media_type == "image/gif" ||
         media_type == "image/webp";
}

std::optional<std::string> link_length_problem(std::string_view url) {
  if (!is_link(url) || url.size() <= kMaxLinkBytes) {
    return std::nullopt;
  }
  return "external link length " + std::to_string(url.size()) + " too long, max link length " + std::to_string(kMaxLinkBytes) +
         ". Consider passing file data directly with base64 data url instead.";
}

std::expected<ImageSource, RequestError> image_from_url(std::string url, ImageDetail detail, std::string path) {
  if (is_link(url)) {
    return ImageSource{.kind = ImageKind::url, .data = std::move(url), .detail = detail, .path = std::move(path)};
  }
  const std::optional<DataUrl> data = parse_data_url(url);
  if (!data || url.find("base64,") == std::string::npos) {
    return reject(path + ": Unsupported image_url format");
  }
  if (!is_image_media_type(data->media_type)) {
    return reject(path +
                  ": You have uploaded an unsupported image. Please make sure your image is valid and has one of the following formats: "
                  "webp, png, jpeg, and gif.");
  }
  if (!decode_body(*data)) {
    return reject(path + ": Invalid base64 data");
  }
  return ImageSource{.kind = ImageKind::data_url, .data = std::move(url), .detail = detail, .path = std::move(path)};
}

std::unexpected<RequestError> reject_file_id(std::string_view path) {
  return reject(std::string(path) + ": file_id is not supported. Pass the image as a base64 data url instead.");
}

}  // namespace deepinfer::recipe

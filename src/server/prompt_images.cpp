#include "server/prompt_images.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace deepinfer::server {
namespace {

// docs/server.md, "Limits". Sides bound the pixels: 8192 * 8192 are 64 mebipixels.
constexpr std::int32_t kMaxImages = 20;
constexpr std::size_t kMaxImageBytes = std::size_t{20} << 20;
constexpr std::int32_t kMaxSidePixels = 8192;

std::expected<recipe::PreparedImage, ImageRefusal> prepare_one(const recipe::ImageSource& source, const recipe::ImageLimits& limits,
                                                               recipe::ImageQuota& quota) {
  if (source.kind == recipe::ImageKind::url) {
    return std::unexpected(ImageRefusal{.status = 400,
                                        .message = source.path + (source.path.empty() ? "" : ": ") +
                                                   "this server does not fetch images from links; send the image as a base64 data URL"});
  }
  const recipe::ImageSource* const one = &source;
  auto prepared = recipe::prepare_images(std::span(&one, 1), limits, {}, quota);
  if (!prepared) {
    return std::unexpected(ImageRefusal{.status = 400, .message = std::move(prepared.error().message)});
  }
  return std::move(prepared->front());
}

}  // namespace

std::shared_ptr<const engine::ImageContent> ImageMemory::hold(std::shared_ptr<const engine::ImageContent> content) const {
  const std::size_t size_bytes = content->rgb.size();
  if (used_bytes_->fetch_add(size_bytes) + size_bytes > max_bytes_) {
    *used_bytes_ -= size_bytes;
    return nullptr;
  }
  const engine::ImageContent* const pixels = content.get();
  return {pixels, [content = std::move(content), used = used_bytes_, size_bytes](const engine::ImageContent*) mutable {
            content.reset();
            *used -= size_bytes;
          }};
}

MaybeImages image_settings(const std::optional<model::VisionConfig>& vision) {
  if (!vision) {
    return std::unexpected("its configuration has no vision_config");
  }
  if (vision->max_wh_ratio) {
    return std::unexpected("its vision_config has a max_wh_ratio, for which there is no rule here");
  }
  return ImageSettings{.limits = {.max_images = kMaxImages,
                                  .max_image_bytes = kMaxImageBytes,
                                  .max_side_pixels = kMaxSidePixels,
                                  .sizing = {.patch_pixels = vision->patch_size,
                                             .cell_pixels = vision->patch_size * vision->downsample_ratio,
                                             .max_tokens = vision->max_image_tokens,
                                             .min_pixels = vision->min_pixels}}};
}

std::expected<IllustratedIds, ImageRefusal> place_images(const ImageSettings& settings, PlaceRequest&& request) {
  check(request.placeholders.size() == request.sources.size(), "every image has a placeholder");
  recipe::ImageQuota quota;
  if (request.sources.size() > static_cast<std::size_t>(settings.limits.max_images)) {  // says so before anything is read
    const auto refused = recipe::prepare_images(request.sources, settings.limits, {}, quota);
    check(!refused.has_value(), "too many images are refused");
    return std::unexpected(ImageRefusal{.status = 400, .message = refused.error().message});
  }
  IllustratedIds out;
  std::size_t done = 0;
  for (std::size_t i = 0; i < request.sources.size(); ++i) {
    auto prepared = prepare_one(*request.sources[i], settings.limits, quota);
    if (!prepared) {
      return std::unexpected(std::move(prepared.error()));
    }
    const auto num_tokens = static_cast<std::size_t>(prepared->num_tokens);
    const TokenId token = request.ids[request.placeholders[i]];
    out.ids.insert(out.ids.end(), request.ids.begin() + static_cast<std::ptrdiff_t>(done),
                   request.ids.begin() + static_cast<std::ptrdiff_t>(request.placeholders[i]));
    engine::PromptImage image{.first_position = static_cast<std::int32_t>(out.ids.size()),
                              .num_tokens = static_cast<std::int32_t>(num_tokens),
                              .content = nullptr};
    out.ids.insert(out.ids.end(), num_tokens, token);
    done = request.placeholders[i] + 1;
    if (request.pixels == Pixels::kept) {
      recipe::RgbImage shown = recipe::shown_pixels(std::move(*prepared), settings.limits.sizing);
      image.content = settings.memory.hold(engine::make_image_content(shown.size.width, shown.size.height, std::move(shown.rgb)));
      if (image.content == nullptr) {
        return std::unexpected(
            ImageRefusal{.status = 429, .message = "the images of other requests take all the memory for images; try again later"});
      }
      if (out.ids.size() > request.context_length) {
        break;  // the caller refuses the prompt for its length
      }
    }
    out.images.push_back(std::move(image));
  }
  out.ids.insert(out.ids.end(), request.ids.begin() + static_cast<std::ptrdiff_t>(done), request.ids.end());
  return out;
}

}  // namespace deepinfer::server

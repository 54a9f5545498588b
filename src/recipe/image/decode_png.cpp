// PNG through libpng. Its errors jump: the functions that they jump out of hold no objects with destructors.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <utility>

#include "recipe/image/formats.h"

namespace deepinfer::recipe {

namespace {

struct Input {
  std::string_view rest;
};

extern "C" {
void read_png_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (count > input->rest.size()) {
    png_error(png, "the file ends early");
  }
  std::memcpy(out, input->rest.data(), count);
  input->rest.remove_prefix(count);
}
void leave_on_png_error(png_structp png, png_const_charp) { png_longjmp(png, 1); }
void ignore_png_warning(png_structp, png_const_charp) {}
}

class PngFile {
 public:
  explicit PngFile(std::string_view bytes)
      : input_{bytes},
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, leave_on_png_error, ignore_png_warning)),
        info_(png_ == nullptr ? nullptr : png_create_info_struct(png_)) {}
  ~PngFile() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;

  [[nodiscard]] bool read_header() {
    if (png_ == nullptr || info_ == nullptr || setjmp(png_jmpbuf(png_)) != 0) {
      return false;
    }
    png_set_read_fn(png_, &input_, read_png_bytes);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // sizes are checked by the caller
    png_read_info(png_, info_);
    return true;
  }

  [[nodiscard]] std::uint32_t width() const { return png_get_image_width(png_, info_); }
  [[nodiscard]] std::uint32_t height() const { return png_get_image_height(png_, info_); }

  /// `rows`: height() pointers to rows of width() RGBA pixels.
  [[nodiscard]] bool read_rows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      return false;
    }
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_add_alpha(png_, 0xFF, PNG_FILLER_AFTER);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != std::size_t{4} * width()) {
      return false;
    }
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  Input input_;
  png_structp png_;
  png_infop info_;
};

}  // namespace

DecodedImage decode_png(std::string_view bytes, std::int32_t max_side) {
  PngFile file(bytes);
  if (!file.read_header()) {
    return std::unexpected(ImageError::Kind::decode);
  }
  const std::uint32_t width = file.width();
  const std::uint32_t height = file.height();
  if (!fits(width, height, max_side)) {
    return std::unexpected(ImageError::Kind::dimensions_too_large);
  }
  std::vector<std::uint8_t> pixels(std::size_t{4} * width * height);
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) {
    rows[y] = pixels.data() + std::size_t{4} * width * y;
  }
  if (!file.read_rows(rows.data())) {
    return std::unexpected(ImageError::Kind::empty_image);
  }
  return over_white({.width = static_cast<std::int32_t>(width), .height = static_cast<std::int32_t>(height)}, std::move(pixels));
}

}  // namespace deepinfer::recipe

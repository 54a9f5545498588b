// JPEG through libjpeg. Its errors jump: the functions that they jump out of hold no objects with destructors.
#include <csetjmp>
#include <cstdio>

// clang-format off: jpeglib.h needs what <cstdio> declares
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "recipe/image/formats.h"

namespace deepinfer::recipe {

namespace {

/// More scans than any encoder writes; a small file of very many full scans is an attack.
constexpr int kMaxScans = 100;

struct Errors {
  jpeg_error_mgr base;  // first: libjpeg hands out its address
  std::jmp_buf leave;
};

extern "C" {
void leave_on_jpeg_error(j_common_ptr info) { std::longjmp(reinterpret_cast<Errors*>(info->err)->leave, 1); }
void judge_jpeg_message(j_common_ptr info, int level) {
  const bool is_warning = level < 0;
  if (is_warning && info->err->msg_code == JWRN_JPEG_EOF) {  // libjpeg would fill the rest with grey
    leave_on_jpeg_error(info);
  }
}
void ignore_jpeg_output(j_common_ptr) {}
void limit_jpeg_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
    leave_on_jpeg_error(info);
  }
}
}

class JpegFile {
 public:
  explicit JpegFile(std::string_view bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = leave_on_jpeg_error;
    errors_.base.emit_message = judge_jpeg_message;
    errors_.base.output_message = ignore_jpeg_output;
    progress_.progress_monitor = limit_jpeg_scans;
  }
  ~JpegFile() { jpeg_destroy_decompress(&info_); }
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  [[nodiscard]] bool read_header() {
    if (setjmp(errors_.leave) != 0) {
      return false;
    }
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  [[nodiscard]] std::uint32_t width() const { return info_.image_width; }
  [[nodiscard]] std::uint32_t height() const { return info_.image_height; }
  [[nodiscard]] bool is_cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }

  /// `pixels`: height() rows of width() RGB pixels, CMYK if is_cmyk().
  [[nodiscard]] bool read_pixels(std::uint8_t* pixels) {
    if (setjmp(errors_.leave) != 0) {
      return false;
    }
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info_);
    const std::size_t row_bytes = static_cast<std::size_t>(info_.output_components) * width();
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + row_bytes * info_.output_scanline;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  std::string_view bytes_;
  Errors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

/// The inks as files keep them: inverted (255 is none).
std::vector<std::uint8_t> rgb_of_inverted_cmyk(std::vector<std::uint8_t> pixels) {
  const std::size_t num_pixels = pixels.size() / 4;
  for (std::size_t i = 0; i < num_pixels; ++i) {
    const std::uint32_t black = pixels[4 * i + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      pixels[3 * i + channel] = static_cast<std::uint8_t>((pixels[4 * i + channel] * black + 127) / 255);
    }
  }
  pixels.resize(num_pixels * 3);
  return pixels;
}

}  // namespace

DecodedImage decode_jpeg(std::string_view bytes, std::int32_t max_side) {
  JpegFile file(bytes);
  if (!file.read_header()) {
    return std::unexpected(ImageError::Kind::decode);
  }
  if (!fits(file.width(), file.height(), max_side)) {
    return std::unexpected(ImageError::Kind::dimensions_too_large);
  }
  const PixelSize size{.width = static_cast<std::int32_t>(file.width()), .height = static_cast<std::int32_t>(file.height())};
  std::vector<std::uint8_t> pixels(std::size_t{file.is_cmyk() ? 4U : 3U} * file.width() * file.height());
  if (!file.read_pixels(pixels.data())) {
    return std::unexpected(ImageError::Kind::empty_image);
  }
  return RgbImage{.size = size, .rgb = file.is_cmyk() ? rgb_of_inverted_cmyk(std::move(pixels)) : std::move(pixels)};
}

}  // namespace deepinfer::recipe

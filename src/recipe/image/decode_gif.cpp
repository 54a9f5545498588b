// GIF 87a and 89a, the first frame on its screen. Our own: the format is small and its usual library is not.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "recipe/image/formats.h"

namespace deepinfer::recipe {

namespace {

/// Reads numbers of a file; past its end everything is zero and ok() is false.
class Bytes {
 public:
  explicit Bytes(std::string_view rest) : rest_(rest) {}

  [[nodiscard]] bool ok() const { return ok_; }

  std::uint32_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? 0 : static_cast<unsigned char>(one[0]);
  }
  std::uint32_t word() {  // little endian
    const std::uint32_t low = byte();
    return low | byte() << 8;
  }
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  /// One block after its length; empty at the terminator and at the end of the file. A block that the file cuts short is what is left.
  std::string_view block() {
    const std::size_t count = byte();
    return take(std::min(count, rest_.size()));
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

/// Codes of up to 12 bits from blocks, low bits first.
class CodeReader {
 public:
  explicit CodeReader(Bytes& file) : file_(file) {}

  std::optional<std::uint32_t> next(std::uint32_t num_bits) {
    while (num_held_ < num_bits) {
      if (block_.empty()) {
        block_ = file_.block();
        if (block_.empty()) {
          return std::nullopt;
        }
      }
      held_ |= static_cast<std::uint32_t>(static_cast<unsigned char>(block_[0])) << num_held_;
      num_held_ += 8;
      block_.remove_prefix(1);
    }
    const std::uint32_t code = held_ & ((1U << num_bits) - 1);
    held_ >>= num_bits;
    num_held_ -= num_bits;
    return code;
  }

 private:
  Bytes& file_;
  std::string_view block_;
  std::uint32_t held_ = 0;
  std::uint32_t num_held_ = 0;
};

/// The LZW dictionary: each entry is an earlier entry and one more colour index.
class Lzw {
 public:
  explicit Lzw(std::uint32_t min_bits) : clear_(1U << min_bits), first_bits_(min_bits + 1) {
    for (std::uint32_t i = 0; i < clear_; ++i) {
      entries_[i] = {.previous = 0, .last = static_cast<std::uint8_t>(i), .first = static_cast<std::uint8_t>(i), .length = 1};
    }
    reset();
  }

  /// False when the data ends or breaks before `indices` is full.
  bool decode(CodeReader& codes, std::vector<std::uint8_t>& indices) {
    std::size_t at = 0;
    while (at < indices.size()) {
      const std::optional<std::uint32_t> code = codes.next(num_bits_);
      if (!code || *code == clear_ + 1) {
        return false;
      }
      if (*code == clear_) {
        reset();
        continue;
      }
      if (!take(*code)) {
        return false;
      }
      at = write(*code, indices, at);
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kMaxEntries = 4096;
  struct Entry {
    std::uint16_t previous = 0;
    std::uint8_t last = 0;
    std::uint8_t first = 0;
    std::uint32_t length = 0;
  };

  void reset() {
    num_entries_ = clear_ + 2;
    num_bits_ = first_bits_;
    previous_.reset();
  }

  /// Learns the entry that `code` completes; false when `code` names nothing.
  bool take(std::uint32_t code) {
    const bool is_new = code == num_entries_ && previous_.has_value();
    if (code >= num_entries_ && !is_new) {
      return false;
    }
    if (previous_ && num_entries_ < kMaxEntries) {
      const std::uint8_t last = is_new ? entries_[*previous_].first : entries_[code].first;
      entries_[num_entries_++] = {.previous = static_cast<std::uint16_t>(*previous_),
                                  .last = last,
                                  .first = entries_[*previous_].first,
                                  .length = entries_[*previous_].length + 1};
      if (num_entries_ == 1U << num_bits_ && num_bits_ < 12) {
        ++num_bits_;
      }
    }
    previous_ = code;
    return true;
  }

  /// The colours of an entry stand back to front.
  std::size_t write(std::uint32_t code, std::vector<std::uint8_t>& indices, std::size_t at) const {
    const std::size_t end = at + entries_[code].length;
    for (std::size_t i = end; i > at; --i) {
      if (i <= indices.size()) {
        indices[i - 1] = entries_[code].last;
      }
      code = entries_[code].previous;
    }
    return end;
  }

  std::uint32_t clear_;
  std::uint32_t first_bits_;
  std::uint32_t num_bits_ = 0;
  std::uint32_t num_entries_ = 0;
  std::optional<std::uint32_t> previous_;
  std::array<Entry, kMaxEntries> entries_{};
};

struct Screen {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::string_view colours;  ///< 3 bytes each; may be empty
};

struct Frame {
  std::uint32_t left = 0;
  std::uint32_t top = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  bool is_interlaced = false;
  std::string_view colours;
  std::optional<std::uint32_t> transparent;
};

/// The colour table that the flags announce.
std::string_view read_colours(Bytes& file, std::uint32_t flags) {
  constexpr std::uint32_t kHasTable = 0x80;
  return (flags & kHasTable) == 0 ? std::string_view() : file.take(std::size_t{3} << ((flags & 7) + 1));
}

Screen read_screen(Bytes& file) {
  Screen screen;
  file.take(6);  // GIF87a, GIF89a
  screen.width = file.word();
  screen.height = file.word();
  const std::uint32_t flags = file.byte();
  file.take(2);  // background colour, which browsers ignore, and pixel ratio
  screen.colours = read_colours(file, flags);
  return screen;
}

/// Skips extensions up to the first frame; nullopt when there is none.
std::optional<Frame> read_frame(Bytes& file, const Screen& screen) {
  constexpr std::uint32_t kFrame = 0x2C;
  constexpr std::uint32_t kExtension = 0x21;
  constexpr std::uint32_t kGraphicControl = 0xF9;
  Frame frame;
  std::uint32_t introducer = file.byte();
  for (; introducer == kExtension; introducer = file.byte()) {
    const bool is_control = file.byte() == kGraphicControl;
    for (std::string_view block = file.block(); !block.empty(); block = file.block()) {
      if (is_control && block.size() >= 4 && (block[0] & 1) != 0) {
        frame.transparent = static_cast<unsigned char>(block[3]);
      }
    }
  }
  if (introducer != kFrame) {
    return std::nullopt;
  }
  frame.left = file.word();
  frame.top = file.word();
  frame.width = file.word();
  frame.height = file.word();
  const std::uint32_t flags = file.byte();
  frame.is_interlaced = (flags & 0x40) != 0;
  frame.colours = read_colours(file, flags);
  if (frame.colours.empty()) {
    frame.colours = screen.colours;
  }
  return frame;
}

/// The row of the frame that the n-th stored row is.
std::vector<std::uint32_t> row_order(const Frame& frame) {
  std::vector<std::uint32_t> rows;
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 4> kPasses{{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
  for (const auto& [first, step] : kPasses) {
    for (std::uint32_t y = first; frame.is_interlaced && y < frame.height; y += step) {
      rows.push_back(y);
    }
  }
  for (std::uint32_t y = 0; !frame.is_interlaced && y < frame.height; ++y) {
    rows.push_back(y);
  }
  return rows;
}

/// Outside the frame and where it is transparent the screen is white.
RgbImage paint(const Screen& screen, const Frame& frame, const std::vector<std::uint8_t>& indices) {
  RgbImage image{.size = {.width = static_cast<std::int32_t>(screen.width), .height = static_cast<std::int32_t>(screen.height)},
                 .rgb = std::vector<std::uint8_t>(std::size_t{3} * screen.width * screen.height, 255)};
  std::size_t at = 0;
  for (const std::uint32_t y : row_order(frame)) {
    for (std::uint32_t x = 0; x < frame.width; ++x, ++at) {
      const std::size_t colour = std::size_t{3} * indices[at];
      const bool is_seen = frame.top + y < screen.height && frame.left + x < screen.width && indices[at] != frame.transparent;
      for (std::size_t channel = 0; is_seen && colour < frame.colours.size() && channel < 3; ++channel) {
        image.rgb[3 * (std::size_t{screen.width} * (frame.top + y) + frame.left + x) + channel] =
            static_cast<std::uint8_t>(frame.colours[colour + channel]);
      }
    }
  }
  return image;
}

}  // namespace

DecodedImage decode_gif(std::string_view bytes, std::int32_t max_side) {
  constexpr std::uint32_t kMaxCodeBits = 8;
  Bytes file(bytes);
  const Screen screen = read_screen(file);
  const std::optional<Frame> frame = read_frame(file, screen);
  const std::uint32_t code_bits = file.byte();
  if (!frame || !file.ok() || code_bits < 1 || code_bits > kMaxCodeBits) {
    return std::unexpected(ImageError::Kind::decode);
  }
  if (screen.width == 0 || screen.height == 0) {
    return std::unexpected(ImageError::Kind::empty_image);
  }
  if (!fits(screen.width, screen.height, max_side) || !fits(frame->width, frame->height, max_side)) {
    return std::unexpected(ImageError::Kind::dimensions_too_large);
  }
  std::vector<std::uint8_t> indices(std::size_t{frame->width} * frame->height);
  CodeReader codes(file);
  if (!Lzw(code_bits).decode(codes, indices)) {
    return std::unexpected(ImageError::Kind::decode);
  }
  return paint(screen, *frame, indices);
}

}  // namespace deepinfer::recipe

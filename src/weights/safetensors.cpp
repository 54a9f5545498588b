#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace deepinfer::weights {

namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

std::optional<DType> dtype_of(std::string_view name) {
  constexpr std::array kAll = {DType::f32, DType::bf16, DType::f8_e4m3, DType::f8_e8m0, DType::i8, DType::u8, DType::i32, DType::i64};
  const auto found = std::ranges::find(kAll, name, name_of);
  return found == kAll.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::uint64_t> unsigned_of(const json::Value& value) {
  const json::Number* number = value.as_number();
  return number == nullptr ? std::nullopt : number->as_uint64();
}

/// Shape and its byte count. Fails on negative or fractional extents, more than four axes, and sizes beyond 63 bits.
struct ShapeAndBytes {
  Shape shape;
  std::size_t bytes = 0;
};

Result<ShapeAndBytes> shape_of(const json::Value* value, DType dtype) {
  const json::Array* extents = value == nullptr ? nullptr : value->as_array();
  if (extents == nullptr) {
    return fail(ErrorKind::corrupt, "has no shape");
  }
  ShapeAndBytes out{.shape = {}, .bytes = size_of(dtype)};
  for (const json::Value& extent : *extents) {
    const std::optional<std::uint64_t> size = unsigned_of(extent);
    std::int64_t product = 0;
    if (!size || __builtin_mul_overflow(static_cast<std::int64_t>(out.bytes), *size, &product)) {
      return fail(ErrorKind::corrupt, "has the impossible shape " + json::to_text(*value));
    }
    if (!out.shape.append(static_cast<std::int64_t>(*size))) {
      return fail(ErrorKind::unsupported, "has more than four axes: " + json::to_text(*value));
    }
    out.bytes = static_cast<std::size_t>(product);
  }
  return out;
}

Result<HeaderEntry> entry_of(const std::string& name, const json::Value& value, std::size_t data_bytes) {
  const json::Value* dtype_value = value.find("dtype");
  const std::string* dtype_text = dtype_value == nullptr ? nullptr : dtype_value->as_string();
  if (dtype_text == nullptr) {
    return fail(ErrorKind::corrupt, "has no dtype");
  }
  const std::optional<DType> dtype = dtype_of(*dtype_text);
  if (!dtype) {
    return fail(ErrorKind::unsupported,
                "has the dtype " + quote(*dtype_text) + ", which is not one of F32, BF16, F8_E4M3, F8_E8M0, I8, U8, I32, I64");
  }
  const Result<ShapeAndBytes> shape = shape_of(value.find("shape"), *dtype);
  if (!shape) {
    return std::unexpected(shape.error());
  }
  const json::Value* offsets_value = value.find("data_offsets");
  const json::Array* offsets = offsets_value == nullptr ? nullptr : offsets_value->as_array();
  const std::optional<std::uint64_t> begin = offsets != nullptr && offsets->size() == 2 ? unsigned_of((*offsets)[0]) : std::nullopt;
  const std::optional<std::uint64_t> end = begin ? unsigned_of((*offsets)[1]) : std::nullopt;
  if (!end || *begin > *end) {
    return fail(ErrorKind::corrupt, "has no data_offsets of the form [begin, end]");
  }
  if (*end - *begin != shape->bytes) {
    return fail(ErrorKind::corrupt, "is " + std::string(name_of(*dtype)) + " " + shape->shape.to_string() + ", " +
                                        std::to_string(shape->bytes) + " bytes, but has " + std::to_string(*end - *begin) +
                                        " bytes of data");
  }
  if (*end > data_bytes) {
    return fail(ErrorKind::corrupt, "ends at byte " + std::to_string(*end) + " of the data, but the file holds only " +
                                        std::to_string(data_bytes) + ": the file is truncated, fetch it again");
  }
  return HeaderEntry{.tensor = {.name = name, .dtype = *dtype, .shape = shape->shape}, .offset = *begin};
}

void check_overlaps(std::vector<HeaderEntry>& entries, std::string_view file, Problems& problems) {
  std::ranges::stable_sort(entries, {}, &HeaderEntry::offset);
  std::size_t end = 0;
  const HeaderEntry* furthest = nullptr;
  for (const HeaderEntry& entry : entries) {
    const std::size_t bytes = entry.tensor.size_bytes();
    if (bytes > 0 && entry.offset < end) {
      problems.add(std::string(file) + ": " + quote(furthest->tensor.name) + " and " + quote(entry.tensor.name) + " overlap in the file");
    }
    if (entry.offset + bytes > end) {
      end = entry.offset + bytes;
      furthest = &entry;
    }
  }
}

}  // namespace

std::string quote(std::string_view name) {
  constexpr std::size_t kMaxShown = 120;
  std::string out;
  if (name.size() <= kMaxShown) {
    json::append_string(out, name);
    return out;
  }
  std::size_t shown = kMaxShown;
  while (shown > 0 && (static_cast<unsigned char>(name[shown]) & 0xC0U) == 0x80U) {
    --shown;  // not inside a UTF-8 character
  }
  json::append_string(out, name.substr(0, shown));
  return out + "…";
}

std::vector<HeaderEntry> parse_header(std::string_view text, std::size_t data_bytes, std::string_view file, Problems& problems) {
  constexpr std::int32_t kMaxDepth = 4;  // header, tensor, shape; one to spare for metadata
  const Result<json::Value> root = json::parse(text, {.max_depth = kMaxDepth, .unique_keys = true});
  if (!root || root->as_object() == nullptr) {
    problems.add(std::string(file) + ": the header is no JSON object" + (root ? "" : ": " + quote(root.error().message)));
    return {};
  }
  std::vector<HeaderEntry> out;
  out.reserve(root->as_object()->size());
  for (const auto& [name, value] : *root->as_object()) {
    if (name == kMetadataKey) {
      continue;
    }
    Result<HeaderEntry> entry = entry_of(name, value, data_bytes);
    if (entry) {
      out.push_back(std::move(*entry));
    } else {
      problems.add(std::string(file) + ": " + quote(name) + " " + entry.error().message);
    }
  }
  check_overlaps(out, file, problems);
  return out;
}

std::string compose_header(std::span<const TensorDescription> tensors) {
  json::Object header;
  std::size_t offset = 0;
  for (const TensorDescription& tensor : tensors) {
    json::Array shape;
    for (std::size_t axis = 0; axis < tensor.shape.rank(); ++axis) {
      shape.emplace_back(tensor.shape[axis]);
    }
    const std::size_t end = offset + tensor.size_bytes();
    header.append(tensor.name, json::Object{{"dtype", name_of(tensor.dtype)},
                                            {"shape", std::move(shape)},
                                            {"data_offsets", json::Array{std::uint64_t{offset}, std::uint64_t{end}}}});
    offset = end;
  }
  std::string text = json::to_text(std::move(header));
  constexpr std::size_t kDataAlignment = 8;
  text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  check(text.size() < kHeaderLimitBytes, "a written header stays below the limit of the format");
  static_assert(std::endian::native == std::endian::little, "the length prefix is little-endian");
  const std::uint64_t length = text.size();
  std::string out(kLengthPrefixBytes, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + text;
}

}  // namespace deepinfer::weights

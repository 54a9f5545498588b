// A file: magic, key, bytes, SHA-256 (64 hexadecimal digits) of all before. No fsync: a file that a crash tore fails its checksum.
#include "engine/disk_tier.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/sha256.h"

namespace deepinfer::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "deepinfer prefix 1\n";
constexpr std::size_t kDigestBytes = 64;
constexpr std::size_t kHexDigits = 16;  // of one word
constexpr std::string_view kUnfinished = ".unfinished";

std::string hex(std::uint64_t word) {
  std::string out(kHexDigits, '0');
  char digits[kHexDigits];
  const auto end = std::to_chars(digits, digits + kHexDigits, word, 16).ptr;
  std::copy(digits, end, out.end() - (end - digits));
  return out;
}

std::string name_of(const PrefixKey& key) {
  return hex(key.prefix.words[0]) + hex(key.prefix.words[1]) + (key.part == PrefixPart::block ? ".block" : ".state");
}

/// The key whose name it is; nullopt for other files.
std::optional<PrefixKey> key_of(const std::string& name) {
  PrefixKey key;
  if (name.size() < 2 * kHexDigits) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    std::from_chars(name.data() + i * kHexDigits, name.data() + (i + 1) * kHexDigits, key.prefix.words[i], 16);
  }
  for (const PrefixPart part : {PrefixPart::block, PrefixPart::state}) {
    key.part = part;
    if (name_of(key) == name) {
      return key;
    }
  }
  return std::nullopt;
}

std::string header_of(const PrefixKey& key) { return std::string(kMagic) + name_of(key) + "\n"; }

/// The file's bytes between header and checksum; nullopt when anything is not as it was written.
std::optional<std::vector<std::byte>> checked_payload(std::string_view file, const PrefixKey& key) {
  const std::string header = header_of(key);
  if (file.size() < header.size() + kDigestBytes || !file.starts_with(header)) {
    return std::nullopt;
  }
  const std::string_view content = file.substr(0, file.size() - kDigestBytes);
  if (sha256(std::as_bytes(std::span(content))) != file.substr(content.size())) {
    return std::nullopt;
  }
  const auto payload = std::as_bytes(std::span(content.substr(header.size())));
  return std::vector<std::byte>(payload.begin(), payload.end());
}

}  // namespace

Result<DiskTier> DiskTier::open(const fs::path& directory, const std::string& owner, std::size_t max_bytes) {
  DiskTier out(directory / owner, max_bytes);
  std::error_code error;
  fs::create_directories(out.folder_, error);
  if (error) {
    return fail(ErrorKind::io, "the folder " + out.folder_.string() + " for cached prefixes cannot be made: " + error.message());
  }
  out.find_files();
  return out;
}

void DiskTier::find_files() {
  struct Found {
    fs::file_time_type time;
    PrefixKey key;
    std::size_t num_bytes = 0;
  };
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator file(folder_, error), end; !error && file != end; file.increment(error)) {
    std::error_code ignored;
    const std::string name = file->path().filename().string();
    if (name.ends_with(kUnfinished)) {
      fs::remove(file->path(), ignored);
    } else if (const auto key = key_of(name)) {
      found.push_back({.time = file->last_write_time(ignored), .key = *key, .num_bytes = file->file_size(ignored)});
    }
  }
  std::ranges::sort(found, {}, &Found::time);
  for (const Found& file : found) {
    add(file.key, file.num_bytes);
  }
  while (num_bytes_ > max_bytes_) {
    remove(order_.front());
  }
}

fs::path DiskTier::path_of(const PrefixKey& key) const { return folder_ / name_of(key); }

void DiskTier::add(const PrefixKey& key, std::size_t num_bytes) {
  entries_[key] = {.num_bytes = num_bytes, .place = order_.insert(order_.end(), key)};
  num_bytes_ += num_bytes;
}

void DiskTier::remove(const PrefixKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return;
  }
  std::error_code ignored;
  fs::remove(path_of(key), ignored);
  removed_.push_back(key);
  num_bytes_ -= found->second.num_bytes;
  order_.erase(found->second.place);
  entries_.erase(found);
}

bool DiskTier::write(const PrefixKey& key, std::span<const std::byte> bytes) {
  std::string file = header_of(key);
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file += sha256(std::as_bytes(std::span(file)));
  remove(key);
  if (file.size() > max_bytes_) {
    return false;
  }
  while (num_bytes_ + file.size() > max_bytes_) {
    remove(order_.front());
  }
  const fs::path path = path_of(key);
  fs::path unfinished = path;
  unfinished += kUnfinished;
  std::ofstream out(unfinished, std::ios::binary);
  out.write(file.data(), static_cast<std::streamsize>(file.size()));
  out.close();
  std::error_code error;
  if (out) {
    fs::rename(unfinished, path, error);
  }
  if (!out || error) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    return false;
  }
  add(key, file.size());
  return true;
}

std::optional<std::vector<std::byte>> DiskTier::read(const PrefixKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return std::nullopt;
  }
  std::ifstream in(path_of(key), std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), {});
  auto payload = checked_payload(file, key);
  if (!payload) {
    remove(key);
    return std::nullopt;
  }
  order_.splice(order_.end(), order_, found->second.place);
  std::error_code ignored;
  fs::last_write_time(path_of(key), fs::file_time_type::clock::now(), ignored);  // the order of use outlives the process
  return payload;
}

}  // namespace deepinfer::engine

#include "tokenizer/test_data.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <random>

#include "base/utf8.h"

namespace deepinfer::tokenizer::testing {

namespace {

std::string unpack(const std::filesystem::path& path) {
  std::string out;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return out;
  }
  char buffer[1 << 16];
  for (int count = gzread(file, buffer, sizeof(buffer)); count > 0; count = gzread(file, buffer, sizeof(buffer))) {
    out.append(buffer, static_cast<std::size_t>(count));
  }
  gzclose(file);
  return out;
}

Tokenizer parse_data(std::string_view name) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(read_data(name));
  if (!tokenizer) {
    ADD_FAILURE() << name << ": " << tokenizer.error().message;
    std::abort();
  }
  return std::move(*tokenizer);
}

/// Ranges of code points, one per kind of character; a character is drawn from a random range.
constexpr std::pair<std::uint32_t, std::uint32_t> kAlphabets[] = {
    {'a', 'z'},       {'A', 'Z'},       {'0', '9'},         {' ', ' '},         {' ', '/'},         {':', '@'},         {'[', '`'},
    {'\n', '\n'},     {'\r', '\r'},     {'\t', '\t'},       {0x00, 0x1F},       {0x7F, 0xA0},       {0xA1, 0x17F},      {0x300, 0x36F},
    {0x391, 0x3C9},   {0x410, 0x44F},   {0x5D0, 0x5EA},     {0x627, 0x64A},     {0x660, 0x669},     {0x904, 0x939},     {0xE01, 0xE4E},
    {0x1100, 0x1112}, {0x2000, 0x200F}, {0x2028, 0x2029},   {0x2010, 0x2027},   {0x2070, 0x2079},   {0x2150, 0x2188},   {0x3000, 0x3003},
    {0x3040, 0x309F}, {0x30A0, 0x30FF}, {0x4E00, 0x4EFF},   {0x9FA0, 0x9FFF},   {0xAC00, 0xAC7F},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFF1F},
    {0xFFF0, 0xFFFD}, {0xE000, 0xE001}, {0x1D7CE, 0x1D7FF}, {0x1F300, 0x1F5FF}, {0x1F600, 0x1F64F}, {0x1F3FB, 0x1F3FF}, {0x20000, 0x200FF},
};

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

std::string read_data(std::string_view name) {
  const std::filesystem::path path = std::filesystem::path(DEEPINFER_TEST_DATA) / "tokenizer" / name;
  std::string out = path.extension() == ".gz" ? unpack(path) : read_file(path);
  if (out.empty()) {
    ADD_FAILURE() << path << " is missing or empty";
  }
  return out;
}

std::string read_overlay() { return read_data("added_tokens_v41.json"); }

const Tokenizer& deepseek() {
  static const Tokenizer tokenizer = parse_data("deepseek-tokenizer.json.gz");
  return tokenizer;
}

const Tokenizer& nano() {
  static const Tokenizer tokenizer = parse_data("nano-tokenizer.json.gz");
  return tokenizer;
}

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = parse_data("tiny-tokenizer.json.gz");
  return tokenizer;
}

std::vector<TokenId> ids_of(std::initializer_list<int> values) {
  std::vector<TokenId> out;
  for (const int value : values) {
    out.push_back(TokenId{value});
  }
  return out;
}

std::string random_text(std::uint32_t seed, int num_chars) {
  std::mt19937 random(seed);
  std::string out;
  int left = num_chars;
  while (left > 0) {
    const auto [low, high] = kAlphabets[random() % std::size(kAlphabets)];
    const int run = std::min<int>(left, static_cast<int>(1 + random() % 4));
    for (int i = 0; i < run; ++i) {
      utf8::append(out, low + static_cast<std::uint32_t>(random() % (high - low + 1)));
    }
    left -= run;
  }
  return out;
}

std::string random_bytes(std::uint32_t seed, int num_bytes) {
  std::mt19937 random(seed);
  std::string out;
  for (int i = 0; i < num_bytes; ++i) {
    const auto draw = static_cast<std::uint32_t>(random());
    out.push_back(static_cast<char>((draw & 0x100) != 0 ? draw & 0x7F : draw & 0xFF));
  }
  return out;
}

std::vector<TokenId> random_ids(const Tokenizer& tokenizer, std::uint32_t seed, int num_ids) {
  std::mt19937 random(seed);
  std::vector<TokenId> out;
  for (int i = 0; i < num_ids; ++i) {
    out.push_back(TokenId{static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(tokenizer.vocab_size()))});
  }
  return out;
}

}  // namespace deepinfer::tokenizer::testing

// Files and tokenizers that the tests of this room share. Each loader fails the running test when its file is missing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer::testing {

/// The text of a file under tests/data/tokenizer; names that end in .gz are unpacked.
std::string read_data(std::string_view name);

/// The text of any file; "" when it does not exist.
std::string read_file(const std::filesystem::path& path);

/// The overlay of the V4.1 tokens.
std::string read_overlay();

const Tokenizer& deepseek();  ///< the V3 file without an overlay
const Tokenizer& nano();
const Tokenizer& tiny();

std::vector<TokenId> ids_of(std::initializer_list<int> values);

/// Random text of many scripts, digits, signs, blanks, controls and emoji: what the patterns tell apart.
std::string random_text(std::uint32_t seed, int num_chars);

/// Any bytes, mostly ill-formed UTF-8.
std::string random_bytes(std::uint32_t seed, int num_bytes);

/// Random ids of the vocabulary.
std::vector<TokenId> random_ids(const Tokenizer& tokenizer, std::uint32_t seed, int num_ids);

}  // namespace deepinfer::tokenizer::testing

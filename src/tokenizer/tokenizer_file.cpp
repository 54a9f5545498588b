#include "tokenizer/tokenizer_file.h"

#include <simdjson.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/text_index.h"

namespace deepinfer::tokenizer {

namespace {

using simdjson::dom::element;

// Bounds the memory that ids of a hostile file can ask for, and lets a pair of tokens and its rank share 64 bits.
constexpr std::int64_t kMaxTokens = (1 << 20) - 1;

// recipe_probe.md section 8: with an overlay every id up to the model's vocabulary size has a token.
constexpr std::int32_t kOverlayVocabSize = 129280;

// The regular expressions of recipe.md section 1, as tokenizer.json spells them.
constexpr std::string_view kDeepseekPatterns[] = {
    R"(\p{N}{1,3})",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

std::unexpected<Error> corrupt(std::string message) { return fail(ErrorKind::corrupt, std::move(message)); }
std::unexpected<Error> unsupported(std::string message) { return fail(ErrorKind::unsupported, std::move(message)); }

/// Member `key` of an object; a null or absent one, or any member of something else, is nullopt.
std::optional<element> member(element parent, std::string_view key) {
  element out;
  if (!parent.is_object() || parent[key].get(out) != simdjson::SUCCESS || out.is_null()) {
    return std::nullopt;
  }
  return out;
}

std::optional<std::string_view> text_of(std::optional<element> value) {
  std::string_view out;
  return value && value->get(out) == simdjson::SUCCESS ? std::optional(out) : std::nullopt;
}

std::optional<std::int64_t> integer_of(std::optional<element> value) {
  std::int64_t out = 0;
  return value && value->get(out) == simdjson::SUCCESS ? std::optional(out) : std::nullopt;
}

bool is_true(std::optional<element> value) {
  bool out = false;
  return value && value->get(out) == simdjson::SUCCESS && out;
}

std::optional<simdjson::dom::array> array_of(std::optional<element> value) {
  simdjson::dom::array out;
  return value && value->get(out) == simdjson::SUCCESS ? std::optional(out) : std::nullopt;
}

bool has_type(element value, std::string_view type) { return text_of(member(value, "type")) == type; }

/// The steps of a Sequence under `key`, or the thing itself.
std::vector<element> steps_of(element value, std::string_view key) {
  if (!has_type(value, "Sequence")) {
    return {value};
  }
  std::vector<element> out;
  if (const auto items = array_of(member(value, key))) {
    out.assign(items->begin(), items->end());
  }
  return out;
}

bool is_known_split(element step, std::string_view pattern) {
  const std::optional<element> wanted = member(step, "pattern");
  return has_type(step, "Split") && wanted && text_of(member(*wanted, "Regex")) == pattern &&
         text_of(member(step, "behavior")) == "Isolated" && !is_true(member(step, "invert"));
}

Result<Pattern> read_pattern(element root) {
  const std::optional<element> pre_tokenizer = member(root, "pre_tokenizer");
  if (!pre_tokenizer) {
    return unsupported("tokenizer.json has no pre_tokenizer; supported are the DeepSeek Split sequence and ByteLevel");
  }
  const std::vector<element> steps = steps_of(*pre_tokenizer, "pretokenizers");
  if (steps.empty() || !has_type(steps.back(), "ByteLevel") || is_true(member(steps.back(), "add_prefix_space"))) {
    return unsupported("pre_tokenizer must end in ByteLevel without add_prefix_space");
  }
  // use_regex is on when the file does not say otherwise.
  const std::optional<element> use_regex = member(steps.back(), "use_regex");
  const bool has_regex = !use_regex || is_true(use_regex);
  if (steps.size() == 1 && has_regex) {
    return Pattern::gpt2;
  }
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    if (i >= std::size(kDeepseekPatterns) || !is_known_split(steps[i], kDeepseekPatterns[i])) {
      return unsupported("pre_tokenizer step " + std::to_string(i) + " is not a known pattern: " + simdjson::minify(steps[i]));
    }
  }
  if (steps.size() != std::size(kDeepseekPatterns) + 1 || has_regex) {
    return unsupported("pre_tokenizer is neither the three DeepSeek Split steps with ByteLevel nor ByteLevel with use_regex");
  }
  return Pattern::deepseek;
}

/// Everything that would change ids or text and is not implemented is refused by name.
std::optional<std::string> unsupported_feature(element root, element model) {
  if (!has_type(model, "BPE")) {
    return "model.type must be BPE";
  }
  for (const std::string_view key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<element> value = member(model, key);
    if (value && text_of(value) != "") {
      return "model." + std::string(key) + " must be null";
    }
  }
  if (const auto normalizer = member(root, "normalizer")) {
    if (!has_type(*normalizer, "Sequence") || !steps_of(*normalizer, "normalizers").empty()) {
      return "normalizer must be null or an empty Sequence";
    }
  }
  const std::optional<element> decoder = member(root, "decoder");
  if (!decoder || !has_type(*decoder, "ByteLevel")) {
    return "decoder must be ByteLevel";
  }
  return std::nullopt;
}

std::optional<Error> read_vocab(simdjson::dom::object vocab, TokenizerFile& file, TextIndex& ids) {
  for (const simdjson::dom::key_value_pair token : vocab) {
    const std::optional<std::int64_t> id = integer_of(token.value);
    if (!id || *id < 0 || *id >= kMaxTokens) {
      return Error{ErrorKind::corrupt, "model.vocab: the id of '" + std::string(token.key) + "' must be an integer from 0 to " +
                                           std::to_string(kMaxTokens - 1)};
    }
    const auto index = static_cast<std::size_t>(*id);
    if (token.key.empty()) {
      return Error{ErrorKind::corrupt, "model.vocab: token " + std::to_string(*id) + " is empty"};
    }
    if (index >= file.spellings.size()) {
      file.spellings.resize(index + 1);
    }
    if (!file.spellings[index].empty()) {
      return Error{ErrorKind::corrupt, "model.vocab: id " + std::to_string(*id) + " has two tokens"};
    }
    file.spellings[index] = token.key;
    if (ids.get_or_add(token.key, static_cast<std::int32_t>(*id)) != *id) {
      return Error{ErrorKind::corrupt, "model.vocab: token '" + std::string(token.key) + "' has two ids"};
    }
  }
  file.num_model_ids = static_cast<std::int32_t>(file.spellings.size());
  for (std::size_t byte = 0; byte < file.byte_tokens.size(); ++byte) {
    file.byte_tokens[byte] = ids.find(spelling_of_bytes(std::string(1, static_cast<char>(byte))));
    if (file.byte_tokens[byte] == TextIndex::kNone) {
      return Error{ErrorKind::unsupported, "model.vocab has no token for the byte " + std::to_string(byte)};
    }
  }
  return std::nullopt;
}

/// The two sides of a merge, spelled "left right" or ["left", "right"].
std::optional<std::pair<std::string_view, std::string_view>> sides_of(element merge) {
  std::optional<std::string_view> left = text_of(merge);
  std::optional<std::string_view> right;
  if (left) {
    const std::size_t space = left->find(' ');
    if (space == std::string_view::npos) {
      return std::nullopt;
    }
    right = left->substr(space + 1);
    left = left->substr(0, space);
  } else if (const auto pair = array_of(merge); pair && pair->size() == 2) {
    left = text_of(pair->at(0).value_unsafe());
    right = text_of(pair->at(1).value_unsafe());
  }
  return left && right ? std::optional(std::pair(*left, *right)) : std::nullopt;
}

std::optional<Error> read_merges(element model, TokenizerFile& file, const TextIndex& ids) {
  const std::optional<simdjson::dom::array> merges = array_of(member(model, "merges"));
  if (!merges) {
    return Error{ErrorKind::corrupt, "model.merges must be an array"};
  }
  if (static_cast<std::int64_t>(merges->size()) >= kMaxTokens) {
    return Error{ErrorKind::unsupported, "model.merges has more than " + std::to_string(kMaxTokens - 1) + " entries"};
  }
  file.merges.reserve(merges->size());
  const auto where = [](const TokenizerFile& read) { return "model.merges[" + std::to_string(read.merges.size()) + "]"; };
  // Ids of results mostly follow one another, which saves the look-up of every third name.
  const auto next_or_find = [&](std::string_view text) {
    const std::size_t next = file.merges.empty() ? 0 : static_cast<std::size_t>(file.merges.back().result) + 1;
    return next < file.spellings.size() && file.spellings[next] == text ? static_cast<std::int32_t>(next) : ids.find(text);
  };
  std::string joined;
  for (const element item : *merges) {
    const auto sides = sides_of(item);
    if (!sides) {
      return Error{ErrorKind::corrupt, where(file) + " must be two tokens"};
    }
    joined.assign(sides->first).append(sides->second);
    const Merge merge{.left = ids.find(sides->first), .right = ids.find(sides->second), .result = next_or_find(joined)};
    if (merge.left == TextIndex::kNone || merge.right == TextIndex::kNone || merge.result == TextIndex::kNone) {
      return Error{ErrorKind::corrupt, where(file) + ": '" + std::string(sides->first) + "', '" + std::string(sides->second) +
                                           "' and the two joined must all be in model.vocab"};
    }
    file.merges.push_back(merge);
  }
  return std::nullopt;
}

Result<AddedToken> read_added_token(element item, std::string_view where) {
  const std::optional<std::int64_t> id = integer_of(member(item, "id"));
  const std::optional<std::string_view> content = text_of(member(item, "content"));
  if (!id || !content || content->empty() || *id < 0 || *id >= kMaxTokens) {
    return corrupt(std::string(where) + ": an added token needs an id from 0 to " + std::to_string(kMaxTokens - 1) + " and a content");
  }
  for (const std::string_view key : {"single_word", "lstrip", "rstrip"}) {
    if (is_true(member(item, key))) {
      return unsupported(std::string(where) + ": " + std::string(key) + " must be false for '" + std::string(*content) + "'");
    }
  }
  return AddedToken{.id = static_cast<std::int32_t>(*id),
                    .text = std::string(*content),
                    .is_special = is_true(member(item, "special")),
                    .is_normalized = is_true(member(item, "normalized"))};
}

Result<std::vector<AddedToken>> read_added_tokens(element root, std::string_view where) {
  std::vector<AddedToken> out;
  const std::optional<element> value = member(root, "added_tokens");
  if (!value) {
    return out;
  }
  const std::optional<simdjson::dom::array> items = array_of(value);
  if (!items) {
    return corrupt(std::string(where) + " must be an array");
  }
  for (const element item : *items) {
    Result<AddedToken> token = read_added_token(item, where);
    if (!token) {
      return std::unexpected(std::move(token.error()));
    }
    out.push_back(std::move(*token));
  }
  return out;
}

/// recipe_probe.md section 8: entries of the overlay replace those of the file by id, the ids that are still free get
/// names that no text contains.
std::vector<AddedToken> overlaid(const std::vector<AddedToken>& base, std::vector<AddedToken> overlay, std::int32_t num_model_tokens) {
  std::map<std::int32_t, AddedToken> by_id;
  for (const AddedToken& token : base) {
    by_id[token.id] = token;
  }
  for (AddedToken& token : overlay) {
    token.is_normalized = false;
    const std::int32_t id = token.id;
    by_id[id] = std::move(token);
  }
  for (std::int32_t id = num_model_tokens; id < kOverlayVocabSize; ++id) {
    by_id.try_emplace(id, AddedToken{.id = id, .text = "<｜unused▁slot▁" + std::to_string(id) + "｜>", .is_special = true});
  }
  std::vector<AddedToken> out;
  for (auto& [id, token] : by_id) {
    out.push_back(std::move(token));
  }
  return out;
}

/// Gives added tokens their ids as the official loader does: a token of the model keeps its id, the others are numbered
/// in file order after the model and the added tokens so far, whatever ids the file names. A repeated text is dropped.
std::vector<AddedToken> renumbered(std::vector<AddedToken> tokens, const TextIndex& ids, std::int32_t num_model_tokens) {
  std::vector<AddedToken> out;
  std::unordered_set<std::string> known;
  std::int32_t next = num_model_tokens;
  for (AddedToken& token : tokens) {
    if (!known.insert(token.text).second) {
      continue;
    }
    const std::int32_t model_id = ids.find(token.text);
    token.id = model_id != TextIndex::kNone ? model_id : next;
    next = std::max(next, token.id + 1);
    out.push_back(std::move(token));
  }
  return out;
}

Result<element> parse_json(simdjson::dom::parser& parser, std::string_view text, std::string_view name) {
  element root;
  const simdjson::error_code error = parser.parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return corrupt(std::string(name) + " is not valid JSON: " + simdjson::error_message(error));
  }
  if (!root.is_object()) {
    return corrupt(std::string(name) + " must be a JSON object");
  }
  return root;
}

std::optional<Error> read_all_added_tokens(element root, std::string_view overlay_json, TokenizerFile& file, const TextIndex& ids) {
  Result<std::vector<AddedToken>> tokens = read_added_tokens(root, "added_tokens");
  if (!tokens) {
    return tokens.error();
  }
  const auto num_model_tokens = static_cast<std::int32_t>(ids.size());
  if (!overlay_json.empty()) {
    simdjson::dom::parser parser;
    const Result<element> overlay_root = parse_json(parser, overlay_json, "the added-tokens file");
    if (!overlay_root) {
      return overlay_root.error();
    }
    Result<std::vector<AddedToken>> overlay = read_added_tokens(*overlay_root, "added_tokens of the added-tokens file");
    if (!overlay) {
      return overlay.error();
    }
    tokens = overlaid(*tokens, std::move(*overlay), num_model_tokens);
  }
  file.added_tokens = renumbered(std::move(*tokens), ids, num_model_tokens);
  for (const AddedToken& token : file.added_tokens) {
    const auto index = static_cast<std::size_t>(token.id);
    if (index >= file.spellings.size()) {
      file.spellings.resize(index + 1);
    }
    if (!file.spellings[index].empty() && file.spellings[index] != token.text) {
      return Error{ErrorKind::corrupt, "model.vocab leaves out ids below " + std::to_string(token.id) +
                                           ", which therefore stands for the two tokens '" + file.spellings[index] + "' and '" +
                                           token.text + "'"};
    }
    file.spellings[index] = token.text;
  }
  return std::nullopt;
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view tokenizer_json, std::string_view added_tokens_json) {
  simdjson::dom::parser parser;
  const Result<element> root = parse_json(parser, tokenizer_json, "tokenizer.json");
  if (!root) {
    return std::unexpected(root.error());
  }
  const std::optional<element> model = member(*root, "model");
  if (!model) {
    return corrupt("tokenizer.json has no model");
  }
  if (std::optional<std::string> feature = unsupported_feature(*root, *model)) {
    return unsupported(std::move(*feature));
  }
  const Result<Pattern> pattern = read_pattern(*root);
  if (!pattern) {
    return std::unexpected(pattern.error());
  }
  TokenizerFile file;
  file.pattern = *pattern;
  file.is_whole_piece_first = is_true(member(*model, "ignore_merges"));
  simdjson::dom::object vocab;
  const std::optional<element> vocab_value = member(*model, "vocab");
  if (!vocab_value || vocab_value->get(vocab) != simdjson::SUCCESS) {
    return corrupt("model.vocab must be an object of token: id");
  }
  if (static_cast<std::int64_t>(vocab.size()) > kMaxTokens) {
    return unsupported("model.vocab has more than " + std::to_string(kMaxTokens) + " tokens");
  }
  TextIndex ids(vocab.size());
  std::optional<Error> error = read_vocab(vocab, file, ids);
  if (!error) {
    error = read_merges(*model, file, ids);
  }
  if (!error) {
    error = read_all_added_tokens(*root, added_tokens_json, file, ids);
  }
  if (error) {
    return std::unexpected(std::move(*error));
  }
  return file;
}

}  // namespace deepinfer::tokenizer

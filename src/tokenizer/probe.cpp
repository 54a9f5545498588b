#include "tokenizer/probe.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tokenizer/detokenizer.h"

namespace deepinfer::tokenizer {

namespace {

std::string_view kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid_argument";
    case ErrorKind::not_found:
      return "not_found";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::io:
      return "io";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  std::unreachable();
}

Result<std::vector<TokenId>> ids_of(const json::Value& request, std::int32_t vocab_size) {
  const json::Value* value = request.find("ids");
  const json::Array* items = value == nullptr ? nullptr : value->as_array();
  if (items == nullptr) {
    return fail(ErrorKind::invalid_argument, "\"ids\" must be an array of token ids");
  }
  std::vector<TokenId> out;
  out.reserve(items->size());
  for (const json::Value& item : *items) {
    const json::Number* number = item.as_number();
    const std::optional<std::int64_t> id = number == nullptr ? std::nullopt : number->as_int64();
    if (!id || *id < 0 || *id >= vocab_size) {
      return fail(ErrorKind::invalid_argument,
                  "ids[" + std::to_string(out.size()) + "] must be an integer from 0 to " + std::to_string(vocab_size - 1));
    }
    out.push_back(TokenId{static_cast<std::int32_t>(*id)});
  }
  return out;
}

/// A boolean member that may be absent.
Result<bool> flag_of(const json::Value& request, std::string_view key, bool value_if_absent) {
  const json::Value* value = request.find(key);
  if (value == nullptr) {
    return value_if_absent;
  }
  const bool* flag = value->as_bool();
  if (flag == nullptr) {
    return fail(ErrorKind::invalid_argument, "\"" + std::string(key) + "\" must be true or false");
  }
  return *flag;
}

json::Array numbers_of(std::span<const TokenId> ids) {
  json::Array out;
  out.reserve(ids.size());
  for (const TokenId id : ids) {
    out.emplace_back(id.value);
  }
  return out;
}

Result<json::Object> answer_encode(const Tokenizer& tokenizer, const json::Value& request) {
  const json::Value* value = request.find("text");
  const std::string* text = value == nullptr ? nullptr : value->as_string();
  if (text == nullptr) {
    return fail(ErrorKind::invalid_argument, "\"text\" must be a string");
  }
  const Result<bool> special = flag_of(request, "special", true);
  if (!special) {
    return std::unexpected(special.error());
  }
  const std::vector<TokenId> ids = tokenizer.encode(*text, *special ? AddedTokens::recognise : AddedTokens::ignore);
  return json::Object{{"ids", numbers_of(ids)}};
}

Result<json::Object> answer_decode(const Tokenizer& tokenizer, const json::Value& request, std::span<const TokenId> ids) {
  const Result<bool> skip = flag_of(request, "skip_special", false);
  if (!skip) {
    return std::unexpected(skip.error());
  }
  return json::Object{{"text", tokenizer.decode(ids, *skip ? SpecialTokens::skip : SpecialTokens::keep)}};
}

/// One piece per id, and one more when the end releases held-back bytes.
json::Object answer_stream(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  Detokenizer detokenizer(tokenizer);
  json::Array pieces;
  for (const TokenId id : ids) {
    std::string piece;
    detokenizer.append(id, piece);
    pieces.emplace_back(std::move(piece));
  }
  std::string rest;
  detokenizer.finish(rest);
  if (!rest.empty()) {
    pieces.emplace_back(std::move(rest));
  }
  return json::Object{{"pieces", std::move(pieces)}};
}

json::Object answer_engram(const EngramVocabulary& engram, std::span<const TokenId> ids) {
  json::Array out;
  for (const TokenId id : ids) {
    out.emplace_back(engram.class_of[static_cast<std::size_t>(id.value)]);
  }
  return json::Object{{"compressed", std::move(out)}};
}

Result<json::Object> answer(const Tokenizer& tokenizer, const EngramVocabulary& engram, std::string_view line) {
  const Result<json::Value> request = json::parse(line);
  if (!request) {
    return std::unexpected(request.error());
  }
  const json::Value* value = request->find("op");
  const std::string* op = value == nullptr ? nullptr : value->as_string();
  if (op == nullptr || (*op != "encode" && *op != "decode" && *op != "stream" && *op != "engram")) {
    return fail(ErrorKind::invalid_argument, "\"op\" must be encode, decode, stream or engram");
  }
  if (*op == "encode") {
    return answer_encode(tokenizer, *request);
  }
  const Result<std::vector<TokenId>> ids = ids_of(*request, tokenizer.vocab_size());
  if (!ids) {
    return std::unexpected(ids.error());
  }
  if (*op == "decode") {
    return answer_decode(tokenizer, *request, *ids);
  }
  return *op == "stream" ? answer_stream(tokenizer, *ids) : answer_engram(engram, *ids);
}

}  // namespace

std::string answer_probe_line(const Tokenizer& tokenizer, const EngramVocabulary& engram, std::string_view line) {
  const Result<json::Object> result = answer(tokenizer, engram, line);
  if (result) {
    return json::to_text(*result);
  }
  json::Object error{{"kind", kind_name(result.error().kind)}, {"message", result.error().message}};
  return json::to_text(json::Object{{"error", std::move(error)}});
}

}  // namespace deepinfer::tokenizer

#include "recipe/token_segments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/json.h"
#include "base/utf8.h"
#include "recipe/reply_events.h"

namespace deepinfer::recipe {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// A token that is no text by itself is written byte by byte.
void append_token_text(std::string& out, std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  if (utf8::is_valid(bytes)) {
    json::append_string(out, bytes);
    return;
  }
  out.push_back('"');
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\\\x";
    out.push_back(kHex[byte >> 4]);
    out.push_back(kHex[byte & 15]);
  }
  out.push_back('"');
}

/// `"token":…,"logprob":…,"bytes":[…]`
void append_token_members(std::string& out, std::string_view bytes, float logprob) {
  out += "\"token\":";
  append_token_text(out, bytes);
  out += ",\"logprob\":";
  append_float(out, logprob);
  out += ",\"bytes\":[";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    char digits[4];
    const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), static_cast<unsigned char>(bytes[i]));
    out.append(i == 0 ? "" : ",").append(digits, end);
  }
  out.push_back(']');
}

}  // namespace

void append_float(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char scientific[24];  // -d.dddddddde-dd
  const auto [end, error] = std::to_chars(std::begin(scientific), std::end(scientific), value, std::chars_format::scientific);
  const std::string_view text(std::begin(scientific), end);
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  constexpr int kLowestFixed = -6;
  constexpr int kHighestFixed = 12;
  if (exponent < kLowestFixed || exponent > kHighestFixed) {
    out.append(text.substr(0, e)).append(exponent < 0 ? "e" : "e+");
    append_integer(out, static_cast<std::int64_t>(exponent));
    return;
  }
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') {
      digits.push_back(c);
    }
  }
  out += text.starts_with('-') ? "-" : "";
  if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
    return;
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  digits.resize(std::max(digits.size(), whole + 1), '0');
  out.append(digits, 0, whole).append(".").append(digits, whole);
}

void append_logprob(std::string& out, const tokenizer::Tokenizer& tokenizer, TokenId id, const TokenLogprob& logprob) {
  out.push_back('{');
  append_token_members(out, tokenizer.bytes(id), logprob.logprob);
  out += ",\"top_logprobs\":[";
  for (std::size_t i = 0; i < logprob.top.size(); ++i) {
    out += i == 0 ? "{" : ",{";
    append_token_members(out, tokenizer.bytes(logprob.top[i].first), logprob.top[i].second);
    out.push_back('}');
  }
  out += "]}";
}

void TokenSegments::push(std::span<const TokenId> ids, const std::vector<TokenLogprob>* logprobs) {
  ids_ = ids;
  logprobs_ = logprobs;
  next_ = 0;
}

std::optional<TokenSegment> TokenSegments::take() {
  while (next_ < ids_.size()) {
    if (is_control(ids_[next_])) {
      return run_tokens_ > 0 ? take_run(true) : take_control();
    }
    add_to_run(next_++);
  }
  return take_run(false);
}

bool TokenSegments::is_control(TokenId id) const {
  const std::string_view bytes = tokenizer_->bytes(id);
  return !bytes.empty() && tokenizer_->find(bytes) == id;
}

TokenSegment TokenSegments::take_control() {
  const TokenId id = ids_[next_];
  text_logprobs_.clear();
  if (logprobs_ != nullptr) {
    text_logprobs_.push_back('[');
    append_logprob(text_logprobs_, *tokenizer_, id, (*logprobs_)[next_]);
    text_logprobs_.push_back(']');
  }
  ++next_;
  return {.text = tokenizer_->bytes(id), .kind = SegmentKind::control_token, .num_tokens = 1, .logprobs = text_logprobs_};
}

void TokenSegments::add_to_run(std::size_t index) {
  run_.append(tokenizer_->bytes(ids_[index]));
  ++run_tokens_;
  if (logprobs_ == nullptr) {
    run_has_logprobs_ = false;
    return;
  }
  run_logprobs_.push_back(run_logprobs_.empty() ? '[' : ',');
  append_logprob(run_logprobs_, *tokenizer_, ids_[index], (*logprobs_)[index]);
}

std::optional<TokenSegment> TokenSegments::take_run(bool at_control) {
  if (run_tokens_ == 0) {
    return std::nullopt;
  }
  const bool valid = utf8::is_valid(run_);
  const std::string* decoded = &run_;
  std::string replaced;
  if (!valid) {
    replaced = utf8::replace_invalid(run_);
    decoded = &replaced;
  }
  if (!at_control && (decoded->empty() || decoded->ends_with(kReplacement))) {
    return std::nullopt;
  }
  text_.swap(valid ? run_ : replaced);
  text_logprobs_.clear();
  if (run_has_logprobs_) {
    text_logprobs_.swap(run_logprobs_);
    text_logprobs_.push_back(']');
  }
  const TokenSegment segment{.text = text_, .kind = SegmentKind::token_text, .num_tokens = run_tokens_, .logprobs = text_logprobs_};
  run_.clear();
  run_logprobs_.clear();
  run_tokens_ = 0;
  run_has_logprobs_ = true;
  return segment;
}

}  // namespace deepinfer::recipe

// Range arithmetic is by hand; Unicode properties and case folding come from ICU.
#include "grammar/code_set.h"

#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <string>

namespace deepinfer::grammar {

namespace {

constexpr char32_t kBelowSurrogates = 0xD7FF;
constexpr char32_t kAboveSurrogates = 0xE000;

CodeSet merged(CodeSet ranges) {
  std::sort(ranges.begin(), ranges.end());
  CodeSet out;
  for (const CodeRange& range : ranges) {
    if (!out.empty() && range.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, range.high);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodeSet from_icu(const icu::UnicodeSet& set) {
  CodeSet out;
  for (std::int32_t i = 0; i < set.getRangeCount(); ++i) {
    out.push_back({static_cast<char32_t>(set.getRangeStart(i)), static_cast<char32_t>(set.getRangeEnd(i))});
  }
  return normalise(std::move(out));
}

}  // namespace

CodeSet normalise(CodeSet ranges) {
  CodeSet kept;
  kept.reserve(ranges.size());
  for (const CodeRange& range : ranges) {
    if (range.low > range.high) {
      continue;
    }
    if (range.low <= kBelowSurrogates) {
      kept.push_back({range.low, std::min(range.high, kBelowSurrogates)});
    }
    if (range.high >= kAboveSurrogates) {
      kept.push_back({std::max(range.low, kAboveSurrogates), std::min(range.high, kMaxCodePoint)});
    }
  }
  return merged(std::move(kept));
}

CodeSet complement(const CodeSet& set) {
  CodeSet out;
  char32_t next = 0;
  for (const CodeRange& range : set) {
    if (range.low > next) {
      out.push_back({next, range.low - 1});
    }
    next = range.high + 1;
  }
  if (next <= kMaxCodePoint) {
    out.push_back({next, kMaxCodePoint});
  }
  return normalise(std::move(out));
}

CodeSet intersection(const CodeSet& a, const CodeSet& b) {
  CodeSet out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const CodeRange both{std::max(a[i].low, b[j].low), std::min(a[i].high, b[j].high)};
    if (both.low <= both.high) {
      out.push_back(both);
    }
    a[i].high < b[j].high ? ++i : ++j;
  }
  return out;
}

CodeSet set_union(CodeSet a, const CodeSet& b) {
  a.insert(a.end(), b.begin(), b.end());
  return merged(std::move(a));
}

bool contains(const CodeSet& set, char32_t code_point) {
  const auto after = std::upper_bound(set.begin(), set.end(), code_point, [](char32_t c, const CodeRange& r) { return c < r.low; });
  return after != set.begin() && code_point <= std::prev(after)->high;
}

CodeSet any_code_point() { return {{0, kBelowSurrogates}, {kAboveSurrogates, kMaxCodePoint}}; }

CodeSet fold_case(const CodeSet& set) {
  icu::UnicodeSet folded;
  for (const CodeRange& range : set) {
    folded.add(static_cast<UChar32>(range.low), static_cast<UChar32>(range.high));
  }
  folded.closeOver(USET_CASE_INSENSITIVE);
  folded.removeAllStrings();
  return set_union(from_icu(folded), set);
}

CodeSet unicode_property(std::string_view name) {
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '=';
  });
  if (!is_plain) {
    return {};
  }
  UErrorCode status = U_ZERO_ERROR;
  const std::string pattern = "[:" + std::string(name) + ":]";
  const icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), status);
  return U_SUCCESS(status) ? from_icu(set) : CodeSet{};
}

}  // namespace deepinfer::grammar

#include "grammar/warm_up.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/matcher.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {
namespace {

/// What leads into texts quickly: one of these begins, then names and numbers, then what separates, then what ends.
constexpr std::string_view kBegins = "{\"[";
constexpr std::string_view kOrder = "\"{[:aA1<-.,/@}]";
constexpr std::int32_t kMostUses = 6;  ///< of a byte, where another one is allowed: nothing nests without end

/// Chooses the next byte's token.
class Writer {
 public:
  explicit Writer(char first) : first_(first) {}

  std::optional<TokenId> next(std::span<const std::uint32_t> mask, const Vocabulary& vocabulary) {
    if (const auto id = take(static_cast<std::uint8_t>(first_), 1, mask, vocabulary)) {
      return id;
    }
    for (const std::int32_t most : {kMostUses, INT32_MAX}) {
      for (const char byte : kOrder) {
        if (const auto id = take(static_cast<std::uint8_t>(byte), most, mask, vocabulary)) {
          return id;
        }
      }
      for (std::int32_t byte = 255; byte >= 0; --byte) {
        if (const auto id = take(static_cast<std::uint8_t>(byte), most, mask, vocabulary)) {
          return id;
        }
      }
    }
    const auto word = std::ranges::find_if(mask, [](std::uint32_t bits) { return bits != 0; });  // a control token, or a longer one
    if (word == mask.end()) {
      return std::nullopt;
    }
    return TokenId{static_cast<std::int32_t>((word - mask.begin()) * 32 + std::countr_zero(*word))};
  }

 private:
  std::optional<TokenId> take(std::uint8_t byte, std::int32_t most, std::span<const std::uint32_t> mask, const Vocabulary& vocabulary) {
    const std::optional<TokenId> id = vocabulary.token_of(byte);
    if (!id || uses_[byte] >= most || (mask[static_cast<std::size_t>(id->value) / 32] >> id->value % 32 & 1U) == 0) {
      return std::nullopt;
    }
    ++uses_[byte];
    return id;
  }

  char first_;  ///< taken once before all others
  std::array<std::int32_t, 256> uses_{};
};

}  // namespace

void fill_first_masks(const std::shared_ptr<const CompiledGrammar>& grammar, const std::shared_ptr<const Vocabulary>& vocabulary,
                      const WarmUp& bounds) {
  const auto deadline = std::chrono::steady_clock::now() + bounds.time;
  Matcher matcher(grammar, vocabulary, {});
  std::vector<std::uint32_t> mask(vocabulary->mask_words());
  for (const char first : kBegins) {
    Writer writer(first);
    for (std::int32_t i = 0; i < bounds.masks && std::chrono::steady_clock::now() < deadline; ++i) {
      matcher.fill_mask(mask);
      const std::optional<TokenId> id = matcher.is_exhausted() ? std::nullopt : writer.next(mask, *vocabulary);
      if (!id || !matcher.accept(*id)) {
        break;
      }
    }
    matcher.rollback(matcher.num_accepted());
  }
}

}  // namespace deepinfer::grammar

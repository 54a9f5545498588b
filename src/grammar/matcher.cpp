#include "grammar/matcher.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "grammar/runtime.h"

namespace deepinfer::grammar {

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::shared_ptr<const Vocabulary> vocabulary, MatcherOptions options)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  check(!options_.bound_id || !options_.trigger_ids.empty(), "a bound id comes with a trigger");
  runtime_ = grammar_->take_runtime(*vocabulary_);
}

Matcher::~Matcher() {
  if (runtime_ != nullptr) {
    grammar_->give_back(std::move(runtime_));
  }
}

Matcher::Matcher(Matcher&&) noexcept = default;

bool Matcher::is_end(TokenId id) const { return std::ranges::find(options_.end_ids, id) != options_.end_ids.end(); }

bool Matcher::is_exhausted() const { return runtime_->is_exhausted(); }

Matcher::Step Matcher::current() const {
  if (!steps_.empty()) {
    return steps_.back();
  }
  return {.set = runtime_->states.start(), .phase = options_.trigger_ids.empty() ? Phase::grammar : Phase::free};
}

/// Starts afresh when the caches have outgrown their bound: the tokens are fed again.
void Matcher::refresh() {
  runtime_->pool.allow(runtime_->limits.parts);
  if (!runtime_->is_full()) {
    return;
  }
  const RunLimits limits = runtime_->limits;
  runtime_ = grammar_->take_runtime(*vocabulary_);
  runtime_->pool.allow(std::numeric_limits<std::uint32_t>::max());  // masks on the way made a part of it before
  steps_.clear();
  for (const TokenId id : tokens_) {
    const std::optional<Step> step = after(current(), id);
    check(step.has_value(), "a token taken once is taken again");
    steps_.push_back(*step);
  }
  if (runtime_->is_full()) {  // the text alone needs more: let it, rather than start afresh at every token
    runtime_->limits.states = limits.states * 2;
    runtime_->limits.runtime_bytes = limits.runtime_bytes * 2;
  }
  runtime_->pool.allow(runtime_->limits.parts);
}

Matcher::Step Matcher::after_free(const Step& from, TokenId id) const {
  const std::vector<TokenId>& trigger = options_.trigger_ids;
  if (from.phase == Phase::forced) {
    const std::uint32_t progress = from.progress + 1;
    return {.set = from.set, .progress = progress, .phase = progress == trigger.size() ? Phase::grammar : Phase::forced};
  }
  if (options_.bound_id && *options_.bound_id == id) {
    return {.set = from.set, .progress = 0, .phase = Phase::forced};
  }
  // Longest beginning of the trigger that ends the ids read so far: at most one longer than before.
  for (std::size_t length = from.progress + 1; length > 0; --length) {
    const bool is_match =
        trigger[length - 1] == id && std::equal(trigger.begin(), trigger.begin() + static_cast<std::ptrdiff_t>(length - 1),
                                                trigger.begin() + static_cast<std::ptrdiff_t>(from.progress + 1 - length));
    if (is_match) {
      return {.set = from.set,
              .progress = static_cast<std::uint32_t>(length),
              .phase = length == trigger.size() ? Phase::grammar : Phase::free};
    }
  }
  return {.set = from.set, .progress = 0, .phase = Phase::free};
}

std::optional<Matcher::Step> Matcher::after(const Step& from, TokenId id) {
  if (from.phase == Phase::ended) {
    return from;
  }
  if (from.phase == Phase::free) {
    const bool is_trigger = std::ranges::find(options_.trigger_ids, id) != options_.trigger_ids.end();
    return is_end(id) && !is_trigger && options_.bound_id != id ? Step{.set = from.set, .phase = Phase::ended} : after_free(from, id);
  }
  if (from.phase == Phase::forced) {
    return options_.trigger_ids[from.progress] == id ? std::optional(after_free(from, id)) : std::nullopt;
  }
  Step out = from;
  out.set = vocabulary_->is_control(id) ? kNoSet : from.set;
  const std::string_view text = vocabulary_->text(id);
  if (text.empty() || is_end(id)) {
    // An id the grammar names is the grammar's token, even when it also ends texts.
    out.set = runtime_->states.token(from.set, id.value);
    if (out.set == kNoSet && is_end(id) && runtime_->states.accepting(from.set)) {
      out.set = from.set;
      out.phase = Phase::ended;
    }
    if (out.set != kNoSet || text.empty()) {
      return out.set == kNoSet ? std::nullopt : std::optional(out);
    }
    return std::nullopt;
  }
  for (const char byte : text) {
    out.set = runtime_->states.step(out.set, static_cast<std::uint8_t>(byte));
    if (out.set == kNoSet) {
      return std::nullopt;
    }
  }
  return out;
}

bool Matcher::accept(TokenId id) {
  if (id.value < 0 || id.value >= vocabulary_->num_rows()) {
    return false;
  }
  refresh();
  const std::optional<Step> step = after(current(), id);
  if (!step || is_exhausted()) {
    return false;
  }
  tokens_.push_back(id);
  steps_.push_back(*step);
  return true;
}

void Matcher::rollback(std::size_t count) {
  check(count <= tokens_.size(), "no more tokens are undone than were taken");
  tokens_.resize(tokens_.size() - count);
  steps_.resize(steps_.size() - count);
}

bool Matcher::can_end() {
  const Step at = current();
  return at.phase == Phase::grammar && runtime_->states.accepting(at.set);
}

bool Matcher::is_finished() {
  const Step at = current();
  return at.phase == Phase::ended || (at.phase == Phase::grammar && runtime_->states.accepting(at.set) &&
                                      runtime_->states.scans(at.set).empty() && runtime_->states.tokens(at.set).empty());
}

void Matcher::fill_mask(std::span<std::uint32_t> mask) {
  check(mask.size() == vocabulary_->mask_words(), "a mask has one bit a row");
  refresh();
  const Step at = current();
  const auto set_id = [&](TokenId id, bool is_allowed) {
    if (id.value >= 0 && id.value < vocabulary_->num_rows()) {
      const std::uint32_t bit = 1U << (static_cast<std::uint32_t>(id.value) % 32);
      std::uint32_t& word = mask[static_cast<std::size_t>(id.value) / 32];
      word = is_allowed ? word | bit : word & ~bit;
    }
  };
  if (at.phase == Phase::free || at.phase == Phase::ended) {
    std::ranges::fill(mask, 0xFFFFFFFFU);
    const std::uint32_t rest = static_cast<std::uint32_t>(vocabulary_->num_rows()) % 32;
    mask.back() = rest == 0 ? mask.back() : (1U << rest) - 1;
    return;
  }
  if (at.phase == Phase::forced) {
    std::ranges::fill(mask, 0U);
    set_id(options_.trigger_ids[at.progress], true);
    return;
  }
  runtime_->masks.fill(at.set, mask);
  const bool is_complete = runtime_->states.accepting(at.set);
  const std::vector<std::int32_t> named = runtime_->states.tokens(at.set);
  for (const TokenId id : options_.end_ids) {
    set_id(id, is_complete || std::ranges::find(named, id.value) != named.end());
  }
}

std::optional<TokenId> Matcher::forced_token() {
  const Step at = current();
  if (at.phase == Phase::forced) {
    return options_.trigger_ids[at.progress];
  }
  const States& states = runtime_->states;
  if (at.phase != Phase::grammar || states.accepting(at.set) || !states.scans(at.set).empty()) {
    return std::nullopt;
  }
  const std::vector<std::int32_t> tokens = states.tokens(at.set);
  const bool is_one = !tokens.empty() && std::ranges::count(tokens, tokens.front()) == std::ssize(tokens);
  return is_one ? std::optional(TokenId{tokens.front()}) : std::nullopt;
}

std::string Matcher::forced(std::size_t max_bytes) {
  std::string out;
  Step at = current();
  if (at.phase != Phase::grammar) {
    return out;
  }
  States& states = runtime_->states;
  while (out.size() < max_bytes && !states.accepting(at.set) && states.tokens(at.set).empty()) {
    SetId only = kNoSet;
    std::int32_t only_byte = -1;
    const std::bitset<256> first = states.first_bytes(at.set);
    for (std::int32_t byte = 0; byte < 256; ++byte) {
      const SetId next = first[static_cast<std::size_t>(byte)] ? states.step(at.set, static_cast<std::uint8_t>(byte)) : kNoSet;
      if (next == kNoSet) {
        continue;
      }
      if (only_byte >= 0) {
        return out;
      }
      only_byte = byte;
      only = next;
    }
    if (only_byte < 0) {
      return out;
    }
    out.push_back(static_cast<char>(only_byte));
    at.set = only;
  }
  return out;
}

Matcher::ByteMatch Matcher::match_bytes(std::string_view text) {
  refresh();
  States& states = runtime_->states;
  SetId set = current().set;
  ByteMatch out;
  while (out.accepted < text.size()) {
    // A control token the grammar names stands in the text with its spelling.
    SetId next = kNoSet;
    std::size_t length = 1;
    for (const std::int32_t token : states.tokens(set)) {
      const std::string_view spelling = vocabulary_->spelling(TokenId{token});
      if (!spelling.empty() && text.substr(out.accepted, spelling.size()) == spelling) {
        next = states.token(set, token);
        length = spelling.size();
      }
    }
    if (next == kNoSet) {
      next = states.step(set, static_cast<std::uint8_t>(text[out.accepted]));
    }
    if (next == kNoSet) {
      return out;
    }
    set = next;
    out.accepted += length;
  }
  out.complete = states.accepting(set);
  return out;
}

}  // namespace deepinfer::grammar

#include "grammar/states.h"

#include <algorithm>
#include <bit>

namespace deepinfer::grammar {

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xFF51AFD7ED558CCDU;
  return hash ^ hash >> 29;
}

constexpr std::size_t kFewItems = 12;  // up to here a linear search beats the table

}  // namespace

std::size_t States::BehindHash::operator()(const Behind& key) const {
  return mix(mix(mix(key.scan_edge, key.origin), key.name), key.count);
}

States::States(const Network& network, Lexer& lexer, std::uint32_t max_items)
    : network_(&network), lexer_(&lexer), max_items_(max_items), table_(256, 0), seen_(64, 0), predicted_(network.rules.size(), 0) {
  sets_.emplace_back();
  hashes_.push_back(0);
  for (const Lexeme& lexeme : network.lexemes) {
    lexeme_starts_.push_back(lexer.start(lexeme.expr, lexeme.encoding));
  }
  begin_draft();
  start_ = static_cast<SetId>(sets_.size());
  add({network.rules[0].start, kHere, 0});
  close();
  start_ = intern();
}

void States::begin_draft() {
  draft_.scans.clear();
  draft_.waits.clear();
  draft_.tokens.clear();
  draft_.items.clear();
  draft_.accepting = false;
  draft_.is_indexed = false;
  ++stamp_;
}

void States::index_items() {
  draft_.is_indexed = true;
  seen_.assign(std::bit_ceil(std::max<std::size_t>(64, draft_.items.size() * 4)), 0);
  for (std::uint32_t i = 0; i < draft_.items.size(); ++i) {
    const Item& item = draft_.items[i];
    std::size_t slot = mix(mix(item.node, item.origin), item.count) & (seen_.size() - 1);
    while (seen_[slot] != 0) {
      slot = (slot + 1) & (seen_.size() - 1);
    }
    seen_[slot] = i + 1;
  }
}

void States::add(Item item) {
  if (draft_.items.size() < kFewItems) {
    if (std::ranges::find(draft_.items, item) == draft_.items.end()) {
      draft_.items.push_back(item);
    }
    return;
  }
  if (draft_.items.size() >= max_items_) {
    exhausted_ = true;
    return;
  }
  if (!draft_.is_indexed || draft_.items.size() * 2 > seen_.size()) {
    index_items();
  }
  std::size_t slot = mix(mix(item.node, item.origin), item.count) & (seen_.size() - 1);
  while (seen_[slot] != 0) {
    if (draft_.items[seen_[slot] - 1] == item) {
      return;
    }
    slot = (slot + 1) & (seen_.size() - 1);
  }
  draft_.items.push_back(item);
  seen_[slot] = static_cast<std::uint32_t>(draft_.items.size());
}

void States::close() {
  for (std::size_t i = 0; i < draft_.items.size(); ++i) {
    close_item(Item(draft_.items[i]));
  }
}

void States::close_item(const Item& item) {
  const Network::Node& node = network_->nodes[item.node];
  if (node.is_final) {
    complete(item);
  }
  for (std::uint32_t i = 0; i < node.num_edges; ++i) {
    follow(item, node.first_edge + i);
  }
}

void States::follow(const Item& item, std::uint32_t edge_index) {
  const Edge& edge = network_->edges[edge_index];
  switch (edge.kind) {
    case EdgeKind::move: {
      std::uint64_t count = item.count;
      bool is_open = true;
      switch (edge.op) {
        case CountOp::none:
          break;
        case CountOp::set:
          count = edge.value;
          break;
        case CountOp::below:
          is_open = count < edge.value;
          ++count;
          break;
        case CountOp::room:
          is_open = count < edge.value;
          break;
        case CountOp::saturate:
          count = std::min(count + 1, edge.value);
          break;
        case CountOp::at_least:
          is_open = count >= edge.value;
          break;
        case CountOp::take_bit:
          is_open = (count >> edge.value & 1) == 0;
          count |= std::uint64_t{1} << edge.value;
          break;
        case CountOp::has_bits:
          is_open = (count & edge.value) == edge.value;
          break;
      }
      if (is_open) {
        add({edge.target, item.origin, count});
      }
      break;
    }
    case EdgeKind::lexeme:
      if (lexeme_starts_[edge.label] != kDead) {
        draft_.scans.push_back({edge_index, item.origin, lexeme_starts_[edge.label], item.count});
      }
      break;
    case EdgeKind::keys: {
      const KeySet& set = network_->key_sets[edge.label];
      if (any_name(set, network_->tries[set.trie].nodes[0], item.count)) {
        draft_.scans.push_back({edge_index, item.origin, 0, item.count});
      }
      break;
    }
    case EdgeKind::call:
      draft_.waits.push_back({edge.label, edge.target, item.origin, item.count});
      if (predicted_[edge.label] != stamp_) {
        predicted_[edge.label] = stamp_;
        add({network_->rules[edge.label].start, kHere, 0});
      }
      if (edge.value == 0 && network_->rules[edge.label].nullable) {
        add({edge.target, item.origin, item.count});
      }
      break;
    case EdgeKind::token:
      draft_.tokens.push_back({edge_index, item.origin, 0, item.count});
      break;
  }
}

void States::complete(const Item& item) {
  const RuleId rule = network_->nodes[item.node].rule;
  const SetId from = item.origin;
  if (rule == 0 && (from == start_ || (from == kHere && start_ == sets_.size()))) {
    draft_.accepting = true;
  }
  if (from == kHere) {
    return;  // the empty text: callers step over nullable rules by themselves
  }
  const std::uint32_t begin = sets_[from].waits;
  const std::uint32_t end = begin + sets_[from].num_waits;
  for (std::uint32_t i = begin; i < end; ++i) {
    const Wait& wait = waits_[i];
    if (wait.rule == rule) {
      add({wait.node, wait.origin == kHere ? from : wait.origin, wait.count});
    }
  }
}

void States::grow_table() {
  std::vector<std::uint32_t> bigger(table_.size() * 2, 0);
  for (SetId id = 1; id < sets_.size(); ++id) {
    std::size_t slot = hashes_[id] & (bigger.size() - 1);
    while (bigger[slot] != 0) {
      slot = (slot + 1) & (bigger.size() - 1);
    }
    bigger[slot] = id;
  }
  table_ = std::move(bigger);
}

SetId States::intern() {
  Draft& draft = draft_;
  if (draft.scans.empty() && draft.tokens.empty() && !draft.accepting) {
    return kNoSet;
  }
  const auto sort_unique = [](auto& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  sort_unique(draft.scans);
  sort_unique(draft.waits);
  sort_unique(draft.tokens);
  std::uint64_t hash = draft.accepting ? 7 : 3;
  for (const Scan& scan : draft.scans) {
    hash =
        mix(mix(hash, static_cast<std::uint64_t>(scan.edge) << 32 | scan.origin), static_cast<std::uint64_t>(scan.at) << 32 ^ scan.count);
  }
  for (const Wait& wait : draft.waits) {
    hash =
        mix(mix(hash, static_cast<std::uint64_t>(wait.rule) << 32 | wait.node), static_cast<std::uint64_t>(wait.origin) << 32 ^ wait.count);
  }
  for (const Scan& scan : draft.tokens) {
    hash = mix(mix(hash, scan.edge), static_cast<std::uint64_t>(scan.origin) << 32 ^ scan.count);
  }
  std::size_t slot = hash & (table_.size() - 1);
  for (; table_[slot] != 0; slot = (slot + 1) & (table_.size() - 1)) {
    const SetId id = table_[slot];
    const Set& set = sets_[id];
    if (hashes_[id] == hash && set.accepting == draft.accepting && std::ranges::equal(scans(id), draft.scans) &&
        std::ranges::equal(std::span(waits_).subspan(set.waits, set.num_waits), draft.waits) &&
        std::ranges::equal(std::span(tokens_).subspan(set.tokens, set.num_tokens), draft.tokens)) {
      return id;
    }
  }
  const auto id = static_cast<SetId>(sets_.size());
  Set& set = sets_.emplace_back();
  set.scans = static_cast<std::uint32_t>(scans_.size());
  set.num_scans = static_cast<std::uint32_t>(draft.scans.size());
  set.waits = static_cast<std::uint32_t>(waits_.size());
  set.num_waits = static_cast<std::uint32_t>(draft.waits.size());
  set.tokens = static_cast<std::uint32_t>(tokens_.size());
  set.num_tokens = static_cast<std::uint32_t>(draft.tokens.size());
  set.accepting = draft.accepting;
  scans_.insert(scans_.end(), draft.scans.begin(), draft.scans.end());
  waits_.insert(waits_.end(), draft.waits.begin(), draft.waits.end());
  tokens_.insert(tokens_.end(), draft.tokens.begin(), draft.tokens.end());
  bytes_ += sizeof(Set) + 16 + (draft.scans.size() + draft.tokens.size()) * sizeof(Scan) + draft.waits.size() * sizeof(Wait);
  hashes_.push_back(hash);
  table_[slot] = id;
  if (sets_.size() * 2 > table_.size()) {
    grow_table();
  }
  return id;
}

std::uint32_t States::next_in(const Scan& scan, std::uint32_t at, std::uint8_t byte) {
  const Edge& edge = network_->edges[scan.edge];
  if (edge.kind == EdgeKind::lexeme) {
    return lexer_->next(at, byte);
  }
  const KeySet& set = network_->key_sets[edge.label];
  return next_key_node(set, network_->tries[set.trie], at, byte, scan.count);
}

bool States::ends_at(const Scan& scan, std::uint32_t at) const {
  const Edge& edge = network_->edges[scan.edge];
  if (edge.kind == EdgeKind::lexeme) {
    return lexer_->accepting(at);
  }
  return network_->tries[network_->key_sets[edge.label].trie].nodes[at].ends >= 0;
}

const Lexeme* States::lexeme_of(const Scan& scan) const {
  const Edge& edge = network_->edges[scan.edge];
  return edge.kind == EdgeKind::lexeme ? &network_->lexemes[edge.label] : nullptr;
}

void States::advance(const Scan& scan, SetId origin, std::uint32_t at) {
  const Edge& edge = network_->edges[scan.edge];
  if (edge.kind == EdgeKind::lexeme) {
    if (lexer_->continues(at)) {
      draft_.scans.push_back({scan.edge, origin, at, scan.count});
    }
    if (lexer_->accepting(at)) {
      add({edge.target, origin, scan.count});
    }
    return;
  }
  const KeySet& set = network_->key_sets[edge.label];
  const KeyTrie::Node& node = network_->tries[set.trie].nodes[at];
  if (!node.children.empty()) {
    draft_.scans.push_back({scan.edge, origin, at, scan.count});
  }
  if (node.ends >= 0) {  // key spellings end in a quote: no name is the prefix of another
    add({edge.target + static_cast<std::uint32_t>(node.ends) - set.low, origin, scan.count});
  }
}

SetId States::compute_step(SetId set, std::uint8_t byte) {
  begin_draft();
  const std::uint32_t begin = sets_[set].scans;
  const std::uint32_t end = begin + sets_[set].num_scans;
  for (std::uint32_t i = begin; i < end; ++i) {
    const Scan scan = scans_[i];
    const std::uint32_t at = next_in(scan, scan.at, byte);
    if (at != 0) {
      advance(scan, scan.origin == kHere ? set : scan.origin, at);
    }
  }
  close();
  const SetId out = intern();
  Set& from = sets_[set];
  if (from.last_byte < 0) {
    from.last_byte = byte;
    from.last_next = out;
    return out;
  }
  row_of(set)[byte] = out;
  return out;
}

std::array<SetId, 256>& States::row_of(SetId set) {
  Set& at = sets_[set];
  if (at.row == nullptr) {
    at.row = std::make_unique<std::array<SetId, 256>>();
    at.row->fill(kUnknown);
    bytes_ += sizeof(*at.row);
  }
  return *at.row;
}

void States::prepare(SetId set) {
  constexpr std::size_t kMaxKinds = 32;  // of bytes; more are looked for one by one
  if (sets_[set].is_prepared) {
    return;
  }
  sets_[set].is_prepared = true;
  const std::bitset<256> first = first_bytes(set);
  const std::vector<Scan> all(scans(set).begin(), scans(set).end());
  std::array<SetId, 256>& row = row_of(set);
  for (const Scan& scan : all) {
    if (lexeme_of(scan) != nullptr) {
      lexer_->prepare(scan.at);
    }
  }
  std::vector<std::uint32_t> kinds;  // one behind the other, where the lexemes are behind a byte
  std::vector<SetId> behind;
  for (std::size_t byte = 0; byte < row.size(); ++byte) {
    if (!first[byte]) {
      row[byte] = kNoSet;
      continue;
    }
    const std::size_t mine = kinds.size();
    for (const Scan& scan : all) {
      kinds.push_back(next_in(scan, scan.at, static_cast<std::uint8_t>(byte)));
    }
    std::size_t kind = 0;
    while (kind < behind.size() && !std::equal(kinds.begin() + static_cast<std::ptrdiff_t>(mine), kinds.end(),
                                               kinds.begin() + static_cast<std::ptrdiff_t>(kind * all.size()))) {
      ++kind;
    }
    if (kind < behind.size()) {
      row[byte] = behind[kind];
      kinds.resize(mine);
      continue;
    }
    row[byte] = step(set, static_cast<std::uint8_t>(byte));
    if (behind.size() < kMaxKinds) {
      behind.push_back(row[byte]);
    } else {
      kinds.resize(mine);
    }
  }
}

States::Loop States::loop(SetId set) {
  CharClasses classes = ~kNoChar;
  for (const Scan& scan : std::vector<Scan>(scans(set).begin(), scans(set).end())) {
    if (lexeme_of(scan) != nullptr) {
      const Lexer::Loop own = lexer_->loop(scan.at);
      classes &= lexer_->accepting(own.at) ? 0 : own.classes;
      continue;
    }
    const KeySet& keys = network_->key_sets[network_->edges[scan.edge].label];
    for (const auto& [byte, child] : network_->tries[keys.trie].nodes[scan.at].children) {
      classes &= ~classes_of_first_byte(byte);
    }
  }
  constexpr std::uint8_t kAscii = 0x7F;
  for (std::uint8_t byte = 0; byte < kAscii && classes != 0; ++byte) {
    if ((classes_of_first_byte(byte) & classes) != 0) {  // any character of them leads there
      const SetId at = step(set, byte);
      return step(at, byte) == at ? Loop{.classes = classes, .at = at} : Loop{};
    }
  }
  return {};
}

SetId States::behind(SetId set, const Scan& scan, std::uint32_t at) {
  const Edge& edge = network_->edges[scan.edge];
  const SetId origin = scan.origin == kHere ? set : scan.origin;
  NodeId target = edge.target;
  if (edge.kind == EdgeKind::keys) {
    const KeySet& keys = network_->key_sets[edge.label];
    target += static_cast<std::uint32_t>(network_->tries[keys.trie].nodes[at].ends) - keys.low;
  }
  const Behind key{.scan_edge = scan.edge, .origin = origin, .name = target, .count = scan.count};
  if (const auto known = behind_.find(key); known != behind_.end()) {
    return known->second;
  }
  begin_draft();
  add({target, origin, scan.count});
  close();
  const SetId out = intern();
  behind_.emplace(key, out);
  bytes_ += 64;
  return out;
}

SetId States::behind(SetId set, std::span<const Scan> scans) {
  if (scans.size() == 1) {
    return behind(set, scans[0], scans[0].at);
  }
  begin_draft();
  for (const Scan& scan : scans) {
    add({network_->edges[scan.edge].target, scan.origin == kHere ? set : scan.origin, scan.count});
  }
  close();
  return intern();
}

SetId States::token(SetId set, std::int32_t token_id) {
  begin_draft();
  const std::uint32_t begin = sets_[set].tokens;
  const std::uint32_t end = begin + sets_[set].num_tokens;
  for (std::uint32_t i = begin; i < end; ++i) {
    const Scan& scan = tokens_[i];
    const Edge& edge = network_->edges[scan.edge];
    if (edge.label == static_cast<std::uint32_t>(token_id)) {
      add({edge.target, scan.origin == kHere ? set : scan.origin, scan.count});
    }
  }
  close();
  return intern();
}

std::vector<std::int32_t> States::tokens(SetId set) const {
  std::vector<std::int32_t> out;
  for (std::uint32_t i = 0; i < sets_[set].num_tokens; ++i) {
    out.push_back(static_cast<std::int32_t>(network_->edges[tokens_[sets_[set].tokens + i].edge].label));
  }
  return out;
}

const std::bitset<256>& States::first_bytes(SetId set) {
  if (sets_[set].first == nullptr) {
    auto first = std::make_unique<std::bitset<256>>();
    for (const Scan& scan : std::vector<Scan>(scans(set).begin(), scans(set).end())) {
      const Edge& edge = network_->edges[scan.edge];
      if (edge.kind == EdgeKind::lexeme) {
        *first |= lexer_->first_bytes(scan.at);
        continue;
      }
      const KeySet& keys = network_->key_sets[edge.label];
      const KeyTrie& trie = network_->tries[keys.trie];
      for (const auto& [byte, child] : trie.nodes[scan.at].children) {
        (*first)[byte] = (*first)[byte] || any_name(keys, trie.nodes[child], scan.count);
      }
    }
    bytes_ += sizeof(*first);
    sets_[set].first = std::move(first);
  }
  return *sets_[set].first;
}

}  // namespace deepinfer::grammar

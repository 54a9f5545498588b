#include "tokenizer/byte_trie.h"

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <utility>

namespace deepinfer::tokenizer {

namespace {

constexpr std::uint32_t kBlock = 256;  // children of one base lie in one block
constexpr std::uint32_t kMaxCells = 1U << 22;
constexpr std::uint32_t kNoCell = ~std::uint32_t{0};

/// Blocks whose free cells are still offered. Cells that fit nothing would otherwise slow every later search down.
constexpr std::uint32_t kMaxOpenBlocks = 16;

}  // namespace

/// Places nodes into cells, breadth first, so that the cells near the root are close together.
class ByteTrie::Builder {
 public:
  explicit Builder(std::vector<Entry> entries) : entries_(std::move(entries)) {
    sort_entries();
    add_block();
    take(0);
    while (first_free_ != kNoCell) {  // the block of children that do not exist
      take(first_free_);
    }
  }

  std::optional<ByteTrie> run() {
    std::deque<Node> nodes{{.begin = 0, .end = entries_.size(), .depth = 0, .cell = 0}};
    while (!nodes.empty()) {
      if (!place_children(nodes.front(), nodes)) {
        return std::nullopt;
      }
      nodes.pop_front();
    }
    return std::move(trie_);
  }

 private:
  /// The entries [begin, end) share their first `depth` bytes, the path to `cell`.
  struct Node {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
    std::uint32_t cell;
  };

  /// By text. Most comparisons end within the first eight bytes, which are kept beside each other.
  void sort_entries() {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    order.reserve(entries_.size());
    for (const Entry& entry : entries_) {
      std::uint64_t prefix = 0;
      for (std::size_t i = 0; i < sizeof(prefix); ++i) {
        prefix = prefix << 8 | (i < entry.text.size() ? static_cast<unsigned char>(entry.text[i]) : 0U);
      }
      order.emplace_back(prefix, static_cast<std::uint32_t>(order.size()));
    }
    std::ranges::sort(order, [this](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : entries_[a.second].text < entries_[b.second].text;
    });
    std::vector<Entry> sorted;
    sorted.reserve(entries_.size());
    for (const auto& [prefix, index] : order) {
      sorted.push_back(entries_[index]);
    }
    entries_ = std::move(sorted);
  }

  bool place_children(Node node, std::deque<Node>& nodes) {
    if (node.begin < node.end && entries_[node.begin].text.size() == node.depth) {
      trie_.cells_[node.cell].value = entries_[node.begin].value;
      ++node.begin;
    }
    std::array<unsigned char, 256> labels;
    std::array<std::size_t, 257> begins;  // of the entries behind each label
    std::size_t num_labels = 0;
    for (std::size_t i = node.begin; i < node.end; ++i) {
      const auto label = static_cast<unsigned char>(entries_[i].text[node.depth]);
      if (num_labels == 0 || label != labels[num_labels - 1]) {
        labels[num_labels] = label;
        begins[num_labels++] = i;
      }
    }
    begins[num_labels] = node.end;
    if (num_labels == 0) {
      return true;  // base 0
    }
    const std::uint32_t base = find_base({labels.data(), num_labels});
    if (base == kNoCell) {
      return false;
    }
    is_base_used_[base] = true;
    trie_.cells_[node.cell].links |= base << kBaseShift;
    for (std::size_t i = 0; i < num_labels; ++i) {
      const std::uint32_t cell = base ^ labels[i];
      take(cell);
      trie_.cells_[cell].links = kUsed | labels[i];
      nodes.push_back({.begin = begins[i], .end = begins[i + 1], .depth = node.depth + 1, .cell = cell});
    }
    return true;
  }

  /// A base that no other node has and whose cells for `labels` are free; kNoCell when the cells run out.
  /// Only children fill the gaps of the oldest blocks; larger families go to the newest, where most cells are free.
  std::uint32_t find_base(std::span<const unsigned char> labels) {
    const bool is_only_child = labels.size() == 1;
    const std::vector<std::uint32_t>& following = is_only_child ? next_free_ : previous_free_;
    std::uint32_t free = is_only_child ? first_free_ : last_free_;
    for (; free != kNoCell; free = following[free]) {
      const std::uint32_t base = free ^ labels[0];
      if (!is_base_used_[base] && std::ranges::all_of(labels, [&](unsigned char label) { return is_free_[base ^ label]; })) {
        return base;
      }
    }
    return add_block() ? static_cast<std::uint32_t>(is_free_.size()) - kBlock : kNoCell;
  }

  bool add_block() {
    const auto begin = static_cast<std::uint32_t>(is_free_.size());
    if (begin + kBlock > kMaxCells) {
      return false;
    }
    if (begin >= kMaxOpenBlocks * kBlock) {
      close_block(begin - kMaxOpenBlocks * kBlock);
    }
    const std::size_t size = begin + kBlock;
    trie_.cells_.resize(size);
    is_free_.resize(size, true);
    is_base_used_.resize(size, false);
    next_free_.resize(size, kNoCell);
    previous_free_.resize(size, kNoCell);
    for (std::uint32_t cell = begin; cell < size; ++cell) {
      previous_free_[cell] = last_free_;
      (last_free_ == kNoCell ? first_free_ : next_free_[last_free_]) = cell;
      last_free_ = cell;
    }
    return true;
  }

  void close_block(std::uint32_t begin) {
    for (std::uint32_t cell = begin; cell < begin + kBlock; ++cell) {
      if (is_free_[cell]) {
        take(cell);
      }
    }
  }

  void take(std::uint32_t cell) {
    is_free_[cell] = false;
    const std::uint32_t previous = previous_free_[cell];
    const std::uint32_t next = next_free_[cell];
    (previous == kNoCell ? first_free_ : next_free_[previous]) = next;
    (next == kNoCell ? last_free_ : previous_free_[next]) = previous;
  }

  std::vector<Entry> entries_;  // sorted
  ByteTrie trie_;
  std::vector<bool> is_free_;       // by cell
  std::vector<bool> is_base_used_;  // by base
  std::vector<std::uint32_t> next_free_;
  std::vector<std::uint32_t> previous_free_;
  std::uint32_t first_free_ = kNoCell;
  std::uint32_t last_free_ = kNoCell;
};

std::optional<ByteTrie> ByteTrie::build(std::vector<Entry> entries) { return Builder(std::move(entries)).run(); }

}  // namespace deepinfer::tokenizer

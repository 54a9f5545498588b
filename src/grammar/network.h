// The compiled form of every grammar: a recursive transition network. Rules are small automata whose edges read a
// lexeme, call a rule, read a control token, or do nothing but move (with an optional operation on the rule's counter).
// Not for matching: that is states.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expr.h"
#include "grammar/lexer.h"

namespace deepinfer::grammar {

using RuleId = std::uint32_t;
using NodeId = std::uint32_t;  ///< state of a rule's automaton, numbered over the whole network

enum class EdgeKind : std::uint8_t { move, lexeme, keys, call, token };

/// What an edge of kind `move` does with the counter of its rule instance; the edge is closed when the guard fails.
enum class CountOp : std::uint8_t {
  none,
  set,       ///< count = value
  below,     ///< guard count < value; count += 1
  room,      ///< guard count < value
  saturate,  ///< count = min(count + 1, value)
  at_least,  ///< guard count >= value
  take_bit,  ///< guard bit `value` is clear; sets it
  has_bits,  ///< guard: all bits of value are set
};

struct Edge {
  EdgeKind kind = EdgeKind::move;
  CountOp op = CountOp::none;
  std::uint32_t label = 0;  ///< lexeme, key set, rule or control token
  NodeId target = 0;        ///< for keys: the node after name i is target + i - KeySet::low
  std::uint64_t value = 0;  ///< operand of op; for calls 1: the empty text of the rule does not count
};

struct Lexeme {
  ExprId expr = 0;
  Encoding encoding = Encoding::text;

  friend bool operator==(const Lexeme&, const Lexeme&) = default;
};

/// Spellings (with quotes) of the keys of one object, as a byte trie; names are numbered in declared order.
struct KeyTrie {
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
    std::vector<std::uint32_t> names;  ///< ascending: names that end here or below
    std::int32_t ends = -1;            ///< the name that ends here
  };
  std::vector<Node> nodes;
};

/// The names low…high of a trie (a position in an object takes only the names from there to the next required one).
struct KeySet {
  std::uint32_t trie = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  bool skips_taken = false;     ///< names whose bit is set in the counter are not taken again
  std::vector<bool> is_closed;  ///< by name − low: no finished text lies behind the name; empty: none is closed
};

/// Some name of the set can still be spelled from `trie_node`; `taken` holds the counter.
[[nodiscard]] bool any_name(const KeySet& set, const KeyTrie::Node& trie_node, std::uint64_t taken);
/// The trie node behind `byte`; 0 (the root, never a child) when no name of the set goes on with it.
[[nodiscard]] std::uint32_t next_key_node(const KeySet& set, const KeyTrie& trie, std::uint32_t trie_node, std::uint8_t byte,
                                          std::uint64_t taken);

struct Network {
  struct Node {
    std::uint32_t first_edge = 0;
    std::uint32_t num_edges = 0;
    bool is_final = false;
    RuleId rule = 0;
  };
  struct Rule {
    NodeId start = 0;
    bool nullable = false;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Rule> rules;  ///< rule 0 is the whole text
  std::vector<Lexeme> lexemes;
  std::vector<KeyTrie> tries;
  std::vector<KeySet> key_sets;

  [[nodiscard]] std::span<const Edge> edges_of(NodeId node) const { return {edges.data() + nodes[node].first_edge, nodes[node].num_edges}; }
  [[nodiscard]] std::size_t bytes() const;
};

/// Collects rules in any order, then prunes what can never reach a finished text.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(ExprPool& pool) : pool_(pool) {}

  [[nodiscard]] RuleId add_rule();
  [[nodiscard]] NodeId add_node(RuleId rule);
  /// A block of consecutive nodes; the first is returned.
  [[nodiscard]] NodeId add_nodes(RuleId rule, std::uint32_t count);
  [[nodiscard]] NodeId start_of(RuleId rule) const { return starts_[rule]; }
  void set_final(NodeId node) { nodes_[node].is_final = true; }

  void move(NodeId from, NodeId to, CountOp op = CountOp::none, std::uint64_t value = 0);
  void lexeme(NodeId from, NodeId to, Lexeme lexeme);
  void call(NodeId from, NodeId to, RuleId rule);
  /// A call whose empty text is left out: for bodies of counted loops that may be skipped anyway.
  void call_not_empty(NodeId from, NodeId to, RuleId rule);
  void token(NodeId from, NodeId to, std::int32_t token_id);
  [[nodiscard]] std::uint32_t add_trie(std::span<const std::string> spellings);
  void keys(NodeId from, NodeId first_target, KeySet set);

  [[nodiscard]] std::size_t num_nodes() const { return nodes_.size(); }
  [[nodiscard]] std::size_t num_edges() const { return edges_.size(); }

  /// Which rules can reach a finished text.
  [[nodiscard]] std::vector<bool> productive_rules() const;
  /// The pruned network; nodes is empty when the root has no finite text.
  [[nodiscard]] Network finish(RuleId root);

 private:
  struct PendingNode {
    RuleId rule = 0;
    bool is_final = false;
  };
  struct PendingEdge {
    NodeId from = 0;
    Edge edge;
  };

  [[nodiscard]] std::vector<bool> productive_nodes() const;
  [[nodiscard]] bool open(const Edge& edge, const std::vector<bool>& productive) const;
  [[nodiscard]] std::vector<NodeId> targets(const Edge& edge) const;
  [[nodiscard]] std::vector<NodeId> reachable_nodes(const std::vector<std::vector<std::uint32_t>>& outgoing, RuleId root) const;

  ExprPool& pool_;
  std::vector<PendingNode> nodes_;
  std::vector<PendingEdge> edges_;
  std::vector<NodeId> starts_;
  std::vector<Lexeme> lexemes_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> lexeme_index_;
  std::vector<KeyTrie> tries_;
  std::vector<KeySet> key_sets_;
};

}  // namespace deepinfer::grammar

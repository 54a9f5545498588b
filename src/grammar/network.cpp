#include "grammar/network.h"

#include <algorithm>
#include <map>

namespace deepinfer::grammar {

namespace {

constexpr NodeId kNoNode = 0xFFFFFFFF;

/// Least fixpoint: which rules can be left without reading anything.
void mark_nullable(Network& network) {
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (Network::Rule& rule : network.rules) {
      if (rule.nullable) {
        continue;
      }
      std::vector<NodeId> open{rule.start};
      std::vector<NodeId> seen{rule.start};
      for (std::size_t i = 0; i < open.size() && !rule.nullable; ++i) {
        rule.nullable = network.nodes[open[i]].is_final;
        for (const Edge& edge : network.edges_of(open[i])) {
          const bool is_guarded = (edge.op == CountOp::at_least || edge.op == CountOp::has_bits) && edge.value > 0;
          const bool is_free = (edge.kind == EdgeKind::move && !is_guarded) ||
                               (edge.kind == EdgeKind::call && edge.value == 0 && network.rules[edge.label].nullable);
          if (is_free && std::ranges::count(seen, edge.target) == 0) {
            seen.push_back(edge.target);
            open.push_back(edge.target);
          }
        }
      }
      has_changed |= rule.nullable;
    }
  }
}

}  // namespace

bool any_name(const KeySet& set, const KeyTrie::Node& trie_node, std::uint64_t taken) {
  for (auto name = std::lower_bound(trie_node.names.begin(), trie_node.names.end(), set.low);
       name != trie_node.names.end() && *name <= set.high; ++name) {
    const bool is_closed = !set.is_closed.empty() && set.is_closed[*name - set.low];
    if (!is_closed && !(set.skips_taken && (taken >> (*name & 63) & 1) != 0)) {
      return true;
    }
  }
  return false;
}

std::uint32_t next_key_node(const KeySet& set, const KeyTrie& trie, std::uint32_t trie_node, std::uint8_t byte, std::uint64_t taken) {
  for (const auto& [key, child] : trie.nodes[trie_node].children) {
    if (key == byte) {
      return any_name(set, trie.nodes[child], taken) ? child : 0;
    }
  }
  return 0;
}

std::size_t Network::bytes() const {
  std::size_t total = nodes.capacity() * sizeof(Node) + edges.capacity() * sizeof(Edge) + rules.capacity() * sizeof(Rule) +
                      lexemes.capacity() * sizeof(Lexeme) + key_sets.capacity() * sizeof(KeySet);
  for (const KeyTrie& trie : tries) {
    total += trie.nodes.capacity() * sizeof(KeyTrie::Node);
    for (const KeyTrie::Node& node : trie.nodes) {
      total += node.children.capacity() * sizeof(node.children[0]) + node.names.capacity() * 4;
    }
  }
  return total;
}

RuleId NetworkBuilder::add_rule() {
  const auto rule = static_cast<RuleId>(starts_.size());
  starts_.push_back(kNoNode);
  starts_.back() = add_node(rule);
  return rule;
}

NodeId NetworkBuilder::add_node(RuleId rule) { return add_nodes(rule, 1); }

NodeId NetworkBuilder::add_nodes(RuleId rule, std::uint32_t count) {
  const auto first = static_cast<NodeId>(nodes_.size());
  nodes_.resize(nodes_.size() + count, {.rule = rule});
  return first;
}

void NetworkBuilder::move(NodeId from, NodeId to, CountOp op, std::uint64_t value) {
  edges_.push_back({from, {.kind = EdgeKind::move, .op = op, .target = to, .value = value}});
}

void NetworkBuilder::lexeme(NodeId from, NodeId to, Lexeme lexeme) {
  if (lexeme.encoding != Encoding::raw_bytes && lexeme.expr == ExprPool::kEpsilon && lexeme.encoding == Encoding::text) {
    move(from, to);
    return;
  }
  if (lexeme.encoding != Encoding::raw_bytes && !pool_.live(lexeme.expr)) {
    return;
  }
  const std::uint64_t key = static_cast<std::uint64_t>(lexeme.expr) << 8 | static_cast<std::uint64_t>(lexeme.encoding);
  const auto place = std::lower_bound(lexeme_index_.begin(), lexeme_index_.end(), std::pair<std::uint64_t, std::uint32_t>{key, 0});
  std::uint32_t label = 0;
  if (place != lexeme_index_.end() && place->first == key) {
    label = place->second;
  } else {
    label = static_cast<std::uint32_t>(lexemes_.size());
    lexemes_.push_back(lexeme);
    lexeme_index_.insert(place, {key, label});
  }
  edges_.push_back({from, {.kind = EdgeKind::lexeme, .label = label, .target = to}});
  const bool is_nullable = lexeme.encoding == Encoding::raw_bytes || (lexeme.encoding == Encoding::text && pool_.nullable(lexeme.expr));
  if (is_nullable) {
    move(from, to);
  }
}

void NetworkBuilder::call(NodeId from, NodeId to, RuleId rule) {
  edges_.push_back({from, {.kind = EdgeKind::call, .label = rule, .target = to}});
}

void NetworkBuilder::call_not_empty(NodeId from, NodeId to, RuleId rule) {
  edges_.push_back({from, {.kind = EdgeKind::call, .label = rule, .target = to, .value = 1}});
}

void NetworkBuilder::token(NodeId from, NodeId to, std::int32_t token_id) {
  edges_.push_back({from, {.kind = EdgeKind::token, .label = static_cast<std::uint32_t>(token_id), .target = to}});
}

std::uint32_t NetworkBuilder::add_trie(std::span<const std::string> spellings) {
  KeyTrie trie;
  trie.nodes.emplace_back();
  for (std::uint32_t name = 0; name < spellings.size(); ++name) {
    std::uint32_t at = 0;
    trie.nodes[0].names.push_back(name);
    for (const char c : spellings[name]) {
      const auto byte = static_cast<std::uint8_t>(c);
      auto& children = trie.nodes[at].children;
      const auto child = std::ranges::find_if(children, [byte](const auto& pair) { return pair.first == byte; });
      if (child != children.end()) {
        at = child->second;
      } else {
        children.emplace_back(byte, static_cast<std::uint32_t>(trie.nodes.size()));
        at = static_cast<std::uint32_t>(trie.nodes.size());
        trie.nodes.emplace_back();
      }
      trie.nodes[at].names.push_back(name);
    }
    trie.nodes[at].ends = static_cast<std::int32_t>(name);
  }
  tries_.push_back(std::move(trie));
  return static_cast<std::uint32_t>(tries_.size() - 1);
}

void NetworkBuilder::keys(NodeId from, NodeId first_target, KeySet set) {
  key_sets_.push_back(std::move(set));
  const auto label = static_cast<std::uint32_t>(key_sets_.size() - 1);
  edges_.push_back({from, {.kind = EdgeKind::keys, .label = label, .target = first_target}});
}

std::vector<NodeId> NetworkBuilder::targets(const Edge& edge) const {
  if (edge.kind != EdgeKind::keys) {
    return {edge.target};
  }
  const KeySet& set = key_sets_[edge.label];
  std::vector<NodeId> out;
  for (std::uint32_t name = set.low; name <= set.high; ++name) {
    out.push_back(edge.target + name - set.low);
  }
  return out;
}

bool NetworkBuilder::open(const Edge& edge, const std::vector<bool>& productive) const {
  if (edge.kind == EdgeKind::keys) {
    return std::ranges::any_of(targets(edge), [&](NodeId node) { return productive[node]; });
  }
  return productive[edge.target] && (edge.kind != EdgeKind::call || productive[starts_[edge.label]]);
}

std::vector<bool> NetworkBuilder::productive_nodes() const {
  std::vector<std::vector<std::uint32_t>> waiting(nodes_.size());  // edges to look at when a node becomes productive
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    for (const NodeId node : targets(edges_[i].edge)) {
      waiting[node].push_back(i);
    }
    if (edges_[i].edge.kind == EdgeKind::call) {
      waiting[starts_[edges_[i].edge.label]].push_back(i);
    }
  }
  std::vector<bool> productive(nodes_.size(), false);
  std::vector<NodeId> open_nodes;
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].is_final) {
      productive[node] = true;
      open_nodes.push_back(node);
    }
  }
  while (!open_nodes.empty()) {
    const NodeId node = open_nodes.back();
    open_nodes.pop_back();
    for (const std::uint32_t i : waiting[node]) {
      const NodeId from = edges_[i].from;
      if (!productive[from] && open(edges_[i].edge, productive)) {
        productive[from] = true;
        open_nodes.push_back(from);
      }
    }
  }
  return productive;
}

std::vector<NodeId> NetworkBuilder::reachable_nodes(const std::vector<std::vector<std::uint32_t>>& outgoing, RuleId root) const {
  std::vector<NodeId> order{starts_[root]};
  std::vector<bool> seen(nodes_.size(), false);
  seen[starts_[root]] = true;
  const auto visit = [&](NodeId node) {
    if (!seen[node]) {
      seen[node] = true;
      order.push_back(node);
    }
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const std::uint32_t edge : outgoing[order[i]]) {
      for (const NodeId node : targets(edges_[edge].edge)) {
        visit(node);
      }
      if (edges_[edge].edge.kind == EdgeKind::call) {
        visit(starts_[edges_[edge].edge.label]);
      }
    }
  }
  std::sort(order.begin(), order.end());  // keeps the targets of a key set consecutive
  return order;
}

std::vector<bool> NetworkBuilder::productive_rules() const {
  const std::vector<bool> nodes = productive_nodes();
  std::vector<bool> out;
  for (const NodeId start : starts_) {
    out.push_back(nodes[start]);
  }
  return out;
}

Network NetworkBuilder::finish(RuleId root) {
  Network out;
  const std::vector<bool> productive = productive_nodes();
  if (!productive[starts_[root]]) {
    return out;
  }
  std::vector<std::vector<std::uint32_t>> outgoing(nodes_.size());
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    if (productive[edges_[i].from] && open(edges_[i].edge, productive)) {
      outgoing[edges_[i].from].push_back(i);
    }
  }
  const std::vector<NodeId> kept = reachable_nodes(outgoing, root);
  std::vector<NodeId> renamed(nodes_.size(), kNoNode);
  for (NodeId i = 0; i < kept.size(); ++i) {
    renamed[kept[i]] = i;
  }
  std::vector<RuleId> rule_names(starts_.size(), kNoNode);
  const auto rule_of = [&](RuleId rule) {
    if (rule_names[rule] == kNoNode) {
      rule_names[rule] = static_cast<RuleId>(out.rules.size());
      out.rules.push_back({.start = renamed[starts_[rule]]});
    }
    return rule_names[rule];
  };
  rule_of(root);
  for (const NodeId node : kept) {
    Network::Node& target = out.nodes.emplace_back();
    target.is_final = nodes_[node].is_final;
    target.first_edge = static_cast<std::uint32_t>(out.edges.size());
    target.rule = rule_of(nodes_[node].rule);
    for (const std::uint32_t i : outgoing[node]) {
      Edge edge = edges_[i].edge;
      if (edge.kind == EdgeKind::keys) {
        KeySet set = key_sets_[edge.label];
        for (std::uint32_t name = set.low; name <= set.high; ++name) {
          set.is_closed.push_back(!productive[edge.target + name - set.low]);
        }
        if (std::ranges::none_of(set.is_closed, [](bool closed) { return closed; })) {
          set.is_closed.clear();
        }
        edge.label = static_cast<std::uint32_t>(out.key_sets.size());
        out.key_sets.push_back(std::move(set));
      }
      edge.label = edge.kind == EdgeKind::call ? rule_of(edge.label) : edge.label;
      edge.target = renamed[edge.target];
      out.edges.push_back(edge);
    }
    target.num_edges = static_cast<std::uint32_t>(out.edges.size()) - target.first_edge;
  }
  out.lexemes = lexemes_;
  out.tries = tries_;
  mark_nullable(out);
  return out;
}

}  // namespace deepinfer::grammar

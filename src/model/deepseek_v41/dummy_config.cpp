#include "model/deepseek_v41/dummy_config.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "model/deepseek_v41/config.h"

namespace deepinfer::model {

namespace {

using Ids = std::vector<std::int64_t>;

std::optional<std::int64_t> integer(const json::Object& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const json::Number* number = value == nullptr ? nullptr : value->as_number();
  return number == nullptr ? std::nullopt : number->as_int64();
}

/// The integers of a list; anything else is left for parse_config to complain about.
Ids integers(const json::Object& object, std::string_view key) {
  Ids out;
  const json::Value* value = object.find(key);
  if (value != nullptr && value->as_array() != nullptr) {
    for (const json::Value& item : *value->as_array()) {
      const json::Number* number = item.as_number();
      out.push_back(number == nullptr ? -1 : number->as_int64().value_or(-1));
    }
  }
  return out;
}

void set_integers(json::Object& object, std::string_view key, const Ids& ids) {
  object.set(std::string(key), json::Array(ids.begin(), ids.end()));
}

constexpr std::string_view kLayerLists[] = {"kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids", "dspark_target_layer_ids"};

/// Applies overrides and adaptations to one configuration.
class Adapter {
 public:
  explicit Adapter(json::Value root) : root_(std::move(root)) {}

  Result<AdaptedConfig> adapt(const std::vector<ConfigOverride>& overrides) {
    json::Object* text = text_config();
    if (text == nullptr) {
      return fail(ErrorKind::invalid_argument, "the configuration has no text_config");
    }
    const std::int64_t old_layers = integer(*text, "num_hidden_layers").value_or(0);
    for (const ConfigOverride& override : overrides) {
      if (Result<void> done = apply(override); !done) {
        return std::unexpected(done.error());
      }
    }
    text = text_config();
    if (text == nullptr) {
      return fail(ErrorKind::invalid_argument, "text_config must stay an object");
    }
    if (Result<void> done = adapt_layers(*text, old_layers); !done) {
      return std::unexpected(done.error());
    }
    adapt_vocabulary(*text);
    adapt_experts(*text, "n_routed_experts", "num_experts_per_tok");
    adapt_experts(*text, "dspark_n_routed_experts", "dspark_num_experts_per_tok");
    adapt_engram_rows(*text);
    return AdaptedConfig{.root = std::move(root_), .notes = std::move(notes_)};
  }

 private:
  json::Object* text_config() {
    json::Object* top = root_.as_object();
    json::Value* text = top == nullptr ? nullptr : top->find("text_config");
    return text == nullptr ? nullptr : text->as_object();
  }

  Result<void> apply(const ConfigOverride& override) {
    std::string_view key = override.key;
    json::Object* object = root_.as_object();
    const std::size_t dot = key.find('.');
    if (dot != std::string_view::npos) {
      json::Value* section = object->find(key.substr(0, dot));
      object = section == nullptr ? nullptr : section->as_object();
      key.remove_prefix(dot + 1);
    } else if (text_config() != nullptr && text_config()->find(key) != nullptr) {
      object = text_config();
    }
    if (object == nullptr || object->find(key) == nullptr) {
      return fail(ErrorKind::invalid_argument, "the configuration has no key " + override.key);
    }
    Result<json::Value> value = json::parse(override.value);
    if (!value) {
      return fail(ErrorKind::invalid_argument,
                  override.key + "=" + override.value + ": the value is no JSON (" + value.error().message + ")");
    }
    object->set(std::string(key), std::move(*value));
    overridden_.insert(std::string(key));
    return {};
  }

  [[nodiscard]] bool is_overridden(std::string_view key) const { return overridden_.contains(key); }

  void adapt_number(json::Object& object, std::string_view key, std::int64_t value) {
    if (integer(object, key) != value && !is_overridden(key)) {
      object.set(std::string(key), value);
      notes_.push_back(std::string(key) + " becomes " + std::to_string(value));
    }
  }

  Result<void> adapt_layers(json::Object& text, std::int64_t old_layers) {
    const std::int64_t layers = integer(text, "num_hidden_layers").value_or(0);
    Ids ratios = integers(text, "compress_ratios");
    const bool is_consistent = old_layers > 0 && old_layers <= static_cast<std::int64_t>(ratios.size());
    if (layers > old_layers) {
      return fail(ErrorKind::invalid_argument,
                  "num_hidden_layers must not exceed the " + std::to_string(old_layers) + " of the configuration");
    }
    if (!is_consistent || is_overridden("compress_ratios")) {
      return {};
    }
    ratios.resize(static_cast<std::size_t>(old_layers));
    while (static_cast<std::int64_t>(ratios.size()) > layers) {
      const std::optional<std::int64_t> layer = dispensable_layer(text, ratios);
      if (!layer) {
        return fail(ErrorKind::invalid_argument,
                    "num_hidden_layers must be at least " + std::to_string(ratios.size()) +
                        ", so many layers have a role; for less also set compress_ratios, kv_source_layer_ids, "
                        "index_source_layer_ids, candidate_source_layer_id, engram_layer_ids and "
                        "dspark_target_layer_ids");
      }
      ratios.erase(ratios.begin() + static_cast<std::ptrdiff_t>(*layer));
      renumber_after(text, *layer);
    }
    ratios.resize(
        ratios.size() + static_cast<std::size_t>(std::clamp<std::int64_t>(integer(text, "num_nextn_predict_layers").value_or(0), 0, 64)),
        0);
    set_integers(text, "compress_ratios", ratios);
    if (layers < old_layers) {
      for (const std::string_view key : kLayerLists) {
        notes_.push_back(std::string(key) + " becomes " + json::to_text(*text.find(key)));
      }
    }
    return {};
  }

  /// The last layer without a role in the group with the most of them; a group shares one index source.
  static std::optional<std::int64_t> dispensable_layer(const json::Object& text, const Ids& ratios) {
    std::set<std::int64_t> with_role;
    for (const std::string_view key : kLayerLists) {
      const Ids ids = integers(text, key);
      with_role.insert(ids.begin(), ids.end());
    }
    const Ids sources = integers(text, "index_source_layer_ids");
    std::map<std::int64_t, Ids> groups;
    for (std::int64_t layer = 0; layer < static_cast<std::int64_t>(ratios.size()); ++layer) {
      if (ratios[static_cast<std::size_t>(layer)] > 0 && !with_role.contains(layer)) {
        groups[std::ranges::upper_bound(sources, layer) - sources.begin()].push_back(layer);
      }
    }
    const auto largest = std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.size(); });
    return largest == groups.end() ? std::nullopt : std::optional(largest->second.back());
  }

  static void renumber_after(json::Object& text, std::int64_t removed) {
    for (const std::string_view key : kLayerLists) {
      Ids ids = integers(text, key);
      std::ranges::transform(ids, ids.begin(), [removed](std::int64_t id) { return id > removed ? id - 1 : id; });
      if (text.find(key) != nullptr) {
        set_integers(text, key, ids);
      }
    }
    const std::optional<std::int64_t> candidate = integer(text, "candidate_source_layer_id");
    if (candidate && *candidate > removed) {
      text.set("candidate_source_layer_id", *candidate - 1);
    }
  }

  void adapt_vocabulary(json::Object& text) {
    const std::int64_t vocab = integer(text, "vocab_size").value_or(0);
    if (vocab < 2) {
      return;
    }
    json::Object& top = *root_.as_object();
    if (integer(top, "image_token_id").value_or(0) >= vocab) {
      adapt_number(top, "image_token_id", vocab - 1);
    }
    if (integer(text, "dspark_noise_token_id").value_or(0) >= vocab) {
      adapt_number(text, "dspark_noise_token_id", vocab - 2);
    }
    if (integer(text, "engram_compressed_vocab_size").value_or(0) > vocab) {
      adapt_number(text, "engram_compressed_vocab_size", vocab);
    }
  }

  void adapt_experts(json::Object& text, std::string_view count_key, std::string_view per_token_key) {
    const std::optional<std::int64_t> count = integer(text, count_key);
    if (count && integer(text, per_token_key).value_or(0) > *count) {
      adapt_number(text, per_token_key, *count);
    }
  }

  void adapt_engram_rows(json::Object& text) {
    Config sizes;
    const auto bounded = [&text](std::string_view key, std::int64_t high) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(integer(text, key).value_or(0), 1, high));
    };
    sizes.engram_layer_ids.resize(std::min<std::size_t>(integers(text, "engram_layer_ids").size(), 64));
    sizes.engram_max_ngram_size = bounded("engram_max_ngram_size", 8);
    sizes.engram_n_heads = bounded("engram_n_heads", 64);
    sizes.engram_vocab_size = bounded("engram_vocab_size", 1 << 27);
    Ids rows;
    for (const std::vector<std::int32_t>& primes : engram_primes(sizes)) {
      rows.push_back(std::accumulate(primes.begin(), primes.end(), std::int64_t{0}));
    }
    if (rows != integers(text, "engram_num_embeddings") && !is_overridden("engram_num_embeddings")) {
      set_integers(text, "engram_num_embeddings", rows);
      notes_.push_back("engram_num_embeddings becomes " + json::to_text(*text.find("engram_num_embeddings")));
    }
  }

  json::Value root_;
  std::set<std::string, std::less<>> overridden_;
  std::vector<std::string> notes_;
};

}  // namespace

Result<AdaptedConfig> adapt_config(json::Value root, const std::vector<ConfigOverride>& overrides) {
  if (root.as_object() == nullptr) {
    return fail(ErrorKind::invalid_argument, "the configuration is no JSON object");
  }
  return Adapter(std::move(root)).adapt(overrides);
}

}  // namespace deepinfer::model

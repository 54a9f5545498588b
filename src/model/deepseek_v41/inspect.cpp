#include "model/deepseek_v41/inspect.h"

#include <memory>
#include <utility>

#include "model/deepseek_v41/report_text.h"
#include "weights/checkpoint.h"
#include "weights/value_check.h"

namespace deepinfer::model {

namespace {

std::string times(std::int64_t a, std::int64_t b) { return std::to_string(a) + " x " + std::to_string(b); }

std::string list_text(const std::vector<std::int32_t>& ids) {
  std::string out;
  for (const std::int32_t id : ids) {
    out += out.empty() ? "" : ", ";
    out += std::to_string(id);
  }
  return out.empty() ? "none" : out;
}

/// What a layer does with compressed rows; layers that agree are printed as one line.
std::vector<std::string> role_cells(const Config& config, std::int32_t layer) {
  if (config.ratio(layer) == 0) {
    return {"0", "-", "-", config.is_drafter(layer) ? "drafter, window only" : "window only"};
  }
  std::string role = "reuse";
  if (config.is_kv_source(layer)) {
    role = "full";
  } else if (config.is_index_source(layer)) {
    role = "re-index";
  }
  if (config.is_candidate_source(layer)) {
    role += ", candidate source";
  }
  return {std::to_string(config.ratio(layer)), std::to_string(config.kv_source(layer)), std::to_string(config.index_source(layer)), role};
}

std::string checkpoint_text(const weights::Checkpoint& checkpoint) {
  TextTable table("lr");
  for (const weights::ShardFile& shard : checkpoint.shards()) {
    table.add({shard.name, grouped(shard.size_bytes) + " bytes"});
  }
  table.add({grouped(checkpoint.tensors().size()) + " tensors", grouped(checkpoint.payload_bytes()) + " bytes"});
  return table.to_text();
}

/// Collects sections and problems in the order of the report.
class Inspector {
 public:
  explicit Inspector(const InspectOptions& options) : options_(options) {}

  InspectReport inspect(const std::filesystem::path& directory) {
    out_.ok = true;
    out_.text = "checkpoint " + directory.string() + "\n";
    const Result<Config> config = load_config(directory);
    const auto checkpoint = weights::Checkpoint::open(directory);
    if (checkpoint) {
      out_.text += checkpoint_text(**checkpoint);
    }
    if (config) {
      section("configuration", describe_config(*config) + describe_layers(*config));
      section("weights by part", describe_sizes(inventory_sizes(expected_tensors(*config))));
      plan_devices(*config);
    } else {
      problem(config.error().message);
    }
    if (!checkpoint) {
      problem(checkpoint.error().message);
    } else {
      check_tensors(config ? &*config : nullptr, **checkpoint);
    }
    out_.text += "\n" + notes_ + (out_.ok ? "no problems found\n" : "");
    return std::move(out_);
  }

 private:
  void section(const std::string& title, const std::string& body) { out_.text += "\n" + title + "\n" + body; }

  void problem(const std::string& sentence) {
    out_.ok = false;
    notes_ += "problem: " + sentence + "\n";
  }

  void plan_devices(const Config& config) {
    std::vector<DevicePlan> devices = options_.devices;
    if (devices.empty()) {
      devices.push_back({.device = "one device without a limit", .limits = {.max_drafts = config.dspark_block_size}});
    }
    for (const DevicePlan& device : devices) {
      const Result<MemoryPlan> plan = plan_memory(config, device.limits);
      if (plan) {
        section("memory plan: " + device.device, describe_memory(*plan));
      } else {
        problem(device.device + ": " + plan.error().message);
      }
    }
  }

  void check_tensors(const Config* config, const weights::Checkpoint& checkpoint) {
    for (const std::string& warning : checkpoint.warnings()) {
      notes_ += "warning: " + warning + "\n";
    }
    if (config != nullptr) {
      const CheckpointFindings findings = validate_checkpoint(*config, checkpoint);
      for (const std::string& warning : findings.warnings) {
        notes_ += "warning: " + warning + "\n";
      }
      if (!findings.problems.empty()) {
        problem(findings.problems.to_text("the tensors"));
      }
    }
    const bool is_wanted =
        options_.values == ValueCheck::always || (options_.values == ValueCheck::by_size && weights::should_check_values(checkpoint));
    if (!is_wanted) {
      notes_ += "note: values were not read\n";
    } else if (const weights::Problems problems = weights::validate_values(checkpoint); !problems.empty()) {
      problem(problems.to_text("the values"));
    }
  }

  const InspectOptions& options_;
  InspectReport out_;
  std::string notes_;
};

}  // namespace

std::string describe_config(const Config& c) {
  TextTable table("ll");
  const auto add = [&table](std::string what, std::string value) { table.add({std::move(what), std::move(value)}); };
  add("vocabulary, hidden size", std::to_string(c.vocab_size) + ", " + std::to_string(c.hidden_size));
  add("layers, drafter blocks", std::to_string(c.num_hidden_layers) + ", " + std::to_string(c.num_nextn_predict_layers));
  add("residual streams", std::to_string(c.hc_mult));
  add("heads", times(c.num_attention_heads, c.head_dim) + ", rotary " + std::to_string(c.qk_rope_head_dim));
  add("query rank, output rank", std::to_string(c.q_lora_rank) + ", " + times(c.o_groups, c.o_lora_rank));
  add("window, longest context", std::to_string(c.sliding_window) + ", " + std::to_string(c.max_position_embeddings));
  add("index heads, rows per query", times(c.index_n_heads, c.index_head_dim) + ", " + std::to_string(c.index_topk));
  add("candidate blocks", c.candidate_source_layer_id ? times(c.candidate_topk_blocks, c.candidate_block_size) + " rows" : "off");
  add("routed experts", std::to_string(c.n_routed_experts) + " of width " + std::to_string(c.moe_intermediate_size) + ", " +
                            std::to_string(c.num_experts_per_tok) + " per token");
  add("Engram layers", list_text(c.engram_layer_ids));
  for (const std::int64_t rows : c.engram_num_embeddings) {
    add("Engram table", times(rows, c.engram_head_dim));
  }
  if (c.has_drafter()) {
    add("drafts per pass, taps", std::to_string(c.dspark_block_size) + ", " + list_text(c.dspark_target_layer_ids));
  }
  if (c.vision) {
    add("vision", std::to_string(c.vision->num_hidden_layers) + " layers of width " + std::to_string(c.vision->hidden_size));
  }
  return table.to_text();
}

std::string describe_layers(const Config& config) {
  TextTable table("lllll");
  table.add({"layers", "ratio", "rows from", "list from", "role"});
  for (std::int32_t layer = 0; layer < config.num_all_layers();) {
    const std::vector<std::string> cells = role_cells(config, layer);
    std::int32_t last = layer;
    while (last + 1 < config.num_all_layers() && role_cells(config, last + 1) == cells) {
      ++last;
    }
    std::vector<std::string> row{std::to_string(layer) + (last > layer ? "-" + std::to_string(last) : "")};
    row.insert(row.end(), cells.begin(), cells.end());
    table.add(std::move(row));
    layer = last + 1;
  }
  return table.to_text();
}

std::string describe_sizes(const InventorySizes& sizes) {
  TextTable table("lrr");
  table.add({"part", "tensors", "bytes"});
  for (std::size_t i = 0; i < kNumWeightParts; ++i) {
    const PartSize& part = sizes.parts[i];
    if (part.num_tensors > 0) {
      table.add({std::string(name_of(static_cast<WeightPart>(i))), grouped(part.num_tensors), grouped(part.bytes)});
    }
  }
  table.add({"total", grouped(sizes.total().num_tensors), grouped(sizes.total().bytes)});
  return table.to_text();
}

std::string describe_caches(const CacheBytes& cache) {
  TextTable table("lr");
  table.add({"per token", grouped(cache.per_token()) + " bytes"});
  table.add({"per block of 128 tokens", grouped(cache.per_block()) + " bytes"});
  table.add({"  compressed rows", grouped(cache.compressed_rows) + " bytes"});
  table.add({"  index keys", grouped(cache.index_keys) + " bytes"});
  table.add({"per request", grouped(cache.per_slot()) + " bytes"});
  table.add({"  window rings, one layer", grouped(cache.window_ring) + " bytes"});
  table.add({"  window rings, all layers", grouped(cache.window_rings) + " bytes"});
  table.add({"  compressor tails", grouped(cache.compressor_tails) + " bytes"});
  return table.to_text();
}

std::string describe_memory(const MemoryPlan& plan) {
  TextTable table("lrrl");
  const auto add = [&table](std::string what, std::size_t bytes, std::string detail) {
    table.add({std::move(what), grouped(bytes), short_bytes(bytes), std::move(detail)});
  };
  table.add({"use", "bytes", "", ""});
  add("weights in memory", plan.weight_bytes, "");
  add("  repacked at load", plan.repacked_bytes,
      "weights of products, in the order of the kernels, as many bytes; a CPU with less than " +
          short_bytes(kMemoryToRepack * plan.weights.total().bytes) + " of memory reads them from the files");
  add("states of requests", plan.slot_bytes, std::to_string(plan.sizes.num_slots) + " slots of " + grouped(plan.cache.per_slot()));
  add("blocks", plan.block_bytes, std::to_string(plan.sizes.num_blocks) + " blocks of " + grouped(plan.cache.per_block()));
  add("activations", plan.workspace_bytes, std::to_string(plan.sizes.max_rows) + " rows");
  add("total", plan.total_bytes(), "");
  if (plan.engram_tables != EngramTables::in_memory) {
    const bool is_on_host = plan.engram_tables == EngramTables::in_host_memory;
    add(is_on_host ? "Engram tables in host memory" : "Engram tables in the files", plan.weights[WeightPart::engram_tables].bytes,
        is_on_host ? "not in the total; rows come over the bus ahead of their layers" : "not in the total; read where they are mapped");
  }
  return table.to_text() + "  room for " + grouped(static_cast<std::size_t>(plan.capacity_tokens())) + " tokens\n";
}

InspectReport inspect_report(const std::filesystem::path& directory, const InspectOptions& options) {
  return Inspector(options).inspect(directory);
}

}  // namespace deepinfer::model

#include "backends/cpu/fast/fast_ops.h"

#include <algorithm>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/fast/fast_tasks.h"
#include "backends/cpu/fast/packed_weights.h"

namespace deepinfer::cpu {
namespace {

// From here on blocks of rows alone share out the work.
constexpr std::int32_t kUncutTasksPerThread = 2;
// From here on products take as long as their multiplications, before as long as reading their weights.
constexpr std::int32_t kRowsForReading = 4;
// Rows of one task that share decoded weights. Without panels of words (pairs.h) its operands should stay in a second cache beside a strip of
// weights: 256 KB as fp32; 1.5 MB of bf16 for a matrix unit, for such processors have caches of 2 MB and decoding is most of their work.
struct TaskRows {
  std::int64_t most_operands;
  std::int32_t most;
};
constexpr TaskRows kTaskRows[] = {{65536, 128}, {std::int64_t{1} << 40, kRowBlock}, {786432, 128}};  // of ProductUnit
// From here on tasks have more rows only where every thread still has its share of tasks.
constexpr std::int32_t kSharedRows = 128;
// Rows whose coefficients are made together: the lanes of a register of doubles.
constexpr std::int32_t kMixTogether = 8;
// Rows of attention or index work that share decoded keys.
constexpr std::int32_t kKeyRows = 32;
// So many of them stay together while every thread has some, or decoding takes as long as what is done with the keys.
constexpr std::int32_t kRowsTogether = 4;

}  // namespace

FastOps::FastOps(std::int32_t num_threads, ProductUnit unit)
    : kernels_(best_kernels(unit)),
      unit_(unit),
      pool_(num_threads),
      scratch_(static_cast<std::size_t>(num_threads)),
      drawers_(static_cast<std::size_t>(num_threads)) {}

std::int32_t FastOps::most_rows(std::int64_t depth, std::int64_t num_rows) const {
  const TaskRows& rows = kTaskRows[static_cast<std::size_t>(unit_)];
  const std::int64_t share = std::max<std::int64_t>(num_rows / (kUncutTasksPerThread * pool_.num_threads()), kSharedRows);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(std::min(rows.most_operands / depth, share), kSharedRows / 2, rows.most));
}

template <class Work>
void FastOps::for_blocks(const Product& product, const Work& work) {
  if (product.num_rows <= 0) {
    return;
  }
  const std::int32_t row_blocks = divide_up(product.num_rows, product.most_rows);
  const std::int32_t row_step = divide_up(product.num_rows, row_blocks);
  // From a few rows on a core multiplies faster than it reads weights.
  const std::int64_t products = static_cast<std::int64_t>(product.num_rows) * product.groups * product.columns * product.depth;
  const std::int64_t cost = products / std::min(product.num_rows, kRowsForReading);
  const std::int32_t threads = pool_.num_threads();
  const std::int32_t wanted = threads == 1 ? 1 : tasks_worth(cost, threads);
  // Every piece of columns decodes the operands again: only as many as keep the threads busy.
  const std::int32_t uncut = row_blocks * product.groups;
  const std::int32_t pieces = uncut >= kUncutTasksPerThread * threads ? 1 : divide_up(wanted, uncut);
  const std::int32_t even = divide_up(divide_up(product.columns, pieces), kColumnStep) * kColumnStep;
  const std::int32_t column_step = std::min(even, product.columns);
  const std::int32_t column_pieces = divide_up(product.columns, column_step);
  const std::int32_t num_blocks = uncut * column_pieces;
  const std::int32_t together = divide_up(num_blocks, std::max(wanted, row_blocks));  // small groups
  for_tasks(divide_up(num_blocks, together), [&](std::int32_t task, Scratch& scratch) {
    for (std::int32_t block = task * together; block < std::min(num_blocks, (task + 1) * together); ++block) {
      scratch.reset();
      const std::int32_t row_block = block % row_blocks;
      const std::int32_t group = block / row_blocks / column_pieces;
      Range columns = piece(block / row_blocks % column_pieces, column_step, product.columns);
      columns = {columns.begin + group * product.columns, columns.end + group * product.columns};
      work(piece(row_block, row_step, product.num_rows), columns, scratch);
    }
  });
}

template <class Work>
void FastOps::for_units(std::int32_t n, const Work& work) {
  const std::int32_t num_units = divide_up(n, kUnit);
  const std::int32_t step = divide_up(num_units, std::min(num_units, pool_.num_threads() * kTasksPerThread));
  for_tasks(divide_up(num_units, step), [&](std::int32_t task, Scratch&) { work(piece(task, step, num_units)); });
}

WeightLayout FastOps::place_weight(Stream& stream, const PlaceWeightParams& p) {
  if (p.n % kUnit != 0) {
    return Ops::place_weight(stream, p);
  }
  if (p.from.format == WeightFormat::fp8) {
    stream.copy(p.scales, p.from.scales, weight_scale_bytes(p.from.format, p.n, p.k));
  }
  for_units(p.n, [&](Range units) { kernels_.linear.pack_units(p, units); });
  return WeightLayout::units;
}

Bf16Weight FastOps::place_bf16(Stream& stream, const PlaceBf16Params& p) {
  if (unit_ == ProductUnit::vector) {
    return Ops::place_bf16(stream, p);  // it reads rows as fast
  }
  for_units(p.n, [&](Range units) { kernels_.linear.place_bf16(p, units); });
  return {.values = p.to, .layout = WeightLayout::units};
}

// --- residual streams ---------------------------------------------------------------------------------------------

void FastOps::embed(Stream&, const EmbedParams& p) {
  for_rows(p.num_rows, {std::int64_t{p.streams} * p.hidden / 8}, [&](Range rows, Scratch&) {
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      for (std::int64_t s = 0; s < p.streams; ++s) {
        std::copy_n(embedding_row(p, r), p.hidden, row_at(p.h, r * p.streams + s, p.hidden));
      }
    }
  });
}

void FastOps::mix(Stream&, const MixParams& p) {
  const std::int64_t cost = std::int64_t{4} * num_mixes(p) * p.streams * p.hidden;  // in double precision, with weights from a far cache
  const std::int32_t threads = pool_.num_threads();
  if (threads == 1 || p.num_rows >= threads * kMixTogether || p.num_rows * cost < 2 * kTaskCost) {
    const std::int32_t step = std::max(divide_up(p.num_rows, threads * kTasksPerThread * kMixTogether), 1) * kMixTogether;
    for_tasks(divide_up(p.num_rows, std::min(step, kRowBlock)), [&](std::int32_t task, Scratch& scratch) {
      kernels_.mix.mix(p, piece(task, std::min(step, kRowBlock), p.num_rows), scratch);
    });
    return;
  }
  // Too few rows for every thread: the coefficients are shared out.
  const Range rows = {0, p.num_rows};
  const std::int64_t num_sums = p.num_rows * mix_sums_per_row(p);
  shared_.reset();
  double* sums = shared_.take<double>(num_sums);
  std::fill_n(sums, num_sums, 0.0);
  const std::int32_t step = divide_up(num_mixes(p), std::min<std::int64_t>(threads, p.num_rows * cost / kTaskCost));
  for_tasks(divide_up(num_mixes(p), step),
            [&](std::int32_t task, Scratch& scratch) { kernels_.mix.sums(p, rows, piece(task, step, num_mixes(p)), sums, scratch); });
  const std::int32_t together = std::min(kMixTogether, divide_up(p.num_rows, threads));
  for_tasks(divide_up(p.num_rows, together), [&](std::int32_t task, Scratch& scratch) {
    const Range part = piece(task, together, p.num_rows);
    MixParams own = p;
    own.pre += std::int64_t{part.begin} * p.streams;
    own.post += std::int64_t{part.begin} * p.streams;
    own.comb += std::int64_t{part.begin} * p.streams * p.streams;
    kernels_.mix.finish(own, {0, part.size()}, sums + part.begin * mix_sums_per_row(p), scratch);
  });
}

void FastOps::collapse_norm(Stream&, const CollapseNormParams& p) {
  const std::int64_t cost = std::int64_t{3} * (p.streams + 8) * p.hidden;
  for_rows(p.num_rows, {cost}, [&](Range rows, Scratch& scratch) { kernels_.streams.collapse_norm(p, rows, scratch); });
}

void FastOps::expand(Stream&, const ExpandParams& p) {
  const std::int64_t cost = std::int64_t{p.streams} * (p.streams + 4) * p.hidden;
  for_rows(p.num_rows, {cost}, [&](Range rows, Scratch& scratch) { kernels_.streams.expand(p, rows, scratch); });
}

void FastOps::mean_streams(Stream&, const MeanStreamsParams& p) {
  const std::int64_t cost = std::int64_t{p.streams + 1} * p.hidden;
  for_rows(p.num_rows, {cost}, [&](Range rows, Scratch& scratch) { kernels_.streams.mean_streams(p, rows, scratch); });
}

// --- norms, rotations, linears ------------------------------------------------------------------------------------

void FastOps::rms_norm(Stream&, const RmsNormParams& p) {
  for_rows(p.num_rows, {std::int64_t{24} * p.width}, [&](Range rows, Scratch& scratch) { kernels_.rows.rms_norm(p, rows, scratch); });
}

void FastOps::quantise(Stream&, const QuantiseParams& p) {
  for_rows(p.num_rows, {std::int64_t{12} * p.width}, [&](Range rows, Scratch& scratch) { kernels_.rows.quantise(p, rows, scratch); });
}

void FastOps::rope_table(Stream&, const RopeTableParams& p) {
  constexpr std::int64_t kCostOfAngle = 400;  // sine and cosine in double precision
  for_rows(p.num_rows, {kCostOfAngle * p.half_dim}, [&](Range rows, Scratch&) {
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      rope_row(p, r);
    }
  });
}

void FastOps::rotate(Stream&, const RotateParams& p) {
  const std::int64_t cost = std::int64_t{32} * p.heads * p.rope_dim;
  for_rows(p.num_rows, {cost}, [&](Range rows, Scratch& scratch) { kernels_.rows.rotate(p, rows, scratch); });
}

void FastOps::linear_q8(Stream&, const LinearQ8Params& p) {
  for_blocks({p.num_rows, p.groups, p.n, p.k, most_rows(p.k, p.num_rows)},
             [&](Range rows, Range columns, Scratch& scratch) { kernels_.linear.linear_q8(p, rows, columns, scratch); });
}

void FastOps::linear_bf16(Stream&, const LinearBf16Params& p) {
  // Columns are transposed for every block of rows, which costs more than operands from a third cache.
  const std::int32_t most = most_rows(unit_ == ProductUnit::vector ? p.k : 1, p.num_rows);
  for_blocks({p.num_rows, 1, p.n, p.k, most},
             [&](Range rows, Range columns, Scratch& scratch) { kernels_.linear.linear_bf16(p, rows, columns, scratch); });
}

void FastOps::add_rows(Stream&, const AddRowsParams& p) {
  for_rows(p.num_rows, {p.width}, [&](Range rows, Scratch&) { kernels_.rows.add_rows(p, rows); });
}

// --- attention ----------------------------------------------------------------------------------------------------

void FastOps::window_rows(Stream&, const WindowRowsParams& p) {
  for_rows(p.num_rows, {std::int64_t{40} * p.head_dim}, [&](Range rows, Scratch& scratch) { kernels_.rows.window_rows(p, rows, scratch); });
}

void FastOps::store_ring(Stream&, const StoreRingParams& p) { copy_to_ring(p); }

void FastOps::compress_pairs(Stream&, const CompressPairsParams& p) {
  for_rows(p.num_groups, {std::int64_t{8} * p.head_dim},
           [&](Range groups, Scratch& scratch) { kernels_.rows.compress_pairs(p, groups, scratch); });
  for (std::int64_t chunk = 0; chunk < p.chunks.num_chunks; ++chunk) {
    store_tail(p, chunk);
  }
}

void FastOps::store_index_keys(Stream&, const StoreIndexKeysParams& p) {
  for_rows(p.num_rows, {std::int64_t{12} * p.index_dim},
           [&](Range rows, Scratch& scratch) { kernels_.rows.store_index_keys(p, rows, scratch); });
}

void FastOps::store_compressed(Stream&, const StoreCompressedParams& p) {
  for_rows(p.num_rows, {std::int64_t{8} * p.head_dim},
           [&](Range rows, Scratch& scratch) { kernels_.rows.store_compressed(p, rows, scratch); });
}

void FastOps::attend(Stream&, const AttendParams& p) {
  if (p.rows.num_rows <= 0) {
    return;
  }
  const std::int32_t chunks = divide_up(p.heads, kHeadChunk);
  std::int64_t keys = p.list != nullptr ? p.top_k : 0;
  keys += std::max(0, p.window_high[p.rows.num_rows - 1] - p.window_low[p.rows.num_rows - 1] + 1);
  const std::int64_t cost_per_row = 2 * keys * std::min(p.heads, kHeadChunk) * p.head_dim;
  const std::int32_t tasks = tasks_worth(cost_per_row * p.rows.num_rows * chunks, pool_.num_threads());
  const std::int32_t even = divide_up(std::int64_t{p.rows.num_rows} * chunks, tasks);
  const std::int32_t shared = std::min(kRowsTogether, divide_up(std::int64_t{p.rows.num_rows} * chunks, pool_.num_threads()));
  const std::int32_t step = std::clamp(std::max(even, shared), 1, kKeyRows);
  const std::int32_t row_pieces = divide_up(p.rows.num_rows, step);
  for_tasks(row_pieces * chunks, [&](std::int32_t task, Scratch& scratch) {
    kernels_.attention.attend(p, piece(task % row_pieces, step, p.rows.num_rows), piece(task / row_pieces, kHeadChunk, p.heads), scratch);
  });
}

/// Scores of one row on all threads, then its choice.
void FastOps::score_one_row(const IndexSelectParams& p, std::int32_t row) {
  const std::int32_t visible = (p.rows.position[row] + 1) / p.ratio;
  const std::int64_t cost_per_key = std::int64_t{p.heads} * p.index_dim;
  const std::int32_t worth = divide_up(kTaskCost / cost_per_key, kKeyTile) * kKeyTile;
  const std::int32_t balanced = divide_up(divide_up(visible, pool_.num_threads() * kTasksPerThread), kKeyTile) * kKeyTile;
  const std::int32_t step = std::max({worth, balanced, kKeyTile});
  shared_.reset();
  float* scores = shared_.take<float>(std::int64_t{divide_up(visible, kKeyTile)} * kKeyTile);
  for_tasks(divide_up(visible, step),
            [&](std::int32_t task, Scratch& scratch) { kernels_.index.score(p, row, piece(task, step, visible), scores, scratch); });
  scratch_[0].reset();
  kernels_.index.pick(p, row, scores, scratch_[0]);
}

void FastOps::index_select(Stream&, const IndexSelectParams& p) {
  const std::int32_t num_rows = p.rows.num_rows;
  if (num_rows <= 0) {
    return;
  }
  std::int64_t longest = 0;
  for (std::int32_t r = 0; r < num_rows; ++r) {
    longest = std::max<std::int64_t>(longest, (p.rows.position[r] + 1) / p.ratio);
  }
  const std::int64_t cost_per_row = longest * p.heads * p.index_dim;
  const bool few = num_rows < 2 * pool_.num_threads() && cost_per_row >= 2 * kTaskCost;
  if (few && p.candidate_mode != CandidateMode::restrict) {
    for (std::int32_t r = 0; r < num_rows; ++r) {
      score_one_row(p, r);
    }
    return;
  }
  const std::int32_t together = p.candidate_mode == CandidateMode::restrict ? 1 : kRowsTogether;  // restricted rows share nothing
  for_rows(num_rows, {2 * cost_per_row, kKeyRows, together},
           [&](Range rows, Scratch& scratch) { kernels_.index.index_select(p, rows, scratch); });
}

// --- routing ------------------------------------------------------------------------------------------------------

void FastOps::route(Stream&, const RouteParams& p) {
  // Every block of rows reads all weights: no more of them than keep the threads busy.
  const std::int64_t cost = std::int64_t{2} * p.num_experts * (p.hidden + 64);
  const std::int32_t threads = pool_.num_threads();
  const std::int32_t most = std::min(threads, tasks_worth(p.num_rows * cost, threads));
  const std::int32_t step = std::clamp(divide_up(p.num_rows, most), 1, kTaskRows[static_cast<std::size_t>(unit_)].most);
  for_tasks(divide_up(p.num_rows, step), [&](std::int32_t task, Scratch& scratch) { kernels_.linear.route(p, piece(task, step, p.num_rows), scratch); });
}

// --- Engram -------------------------------------------------------------------------------------------------------

void FastOps::engram_gather(Stream&, const EngramGatherParams& p) {
  for_rows(p.num_rows, {std::int64_t{p.columns} * p.row_dim / 2}, [&](Range rows, Scratch&) {
    for (std::int64_t i = std::int64_t{rows.begin} * p.columns; i < std::int64_t{rows.end} * p.columns; ++i) {
      gather_engram_row(p, i);
    }
  });
}

void FastOps::engram_gate(Stream&, const EngramGateParams& p) {
  const std::int64_t cost = std::int64_t{p.streams} * 8 * p.hidden;
  for_rows(p.num_rows, {cost}, [&](Range rows, Scratch& scratch) { kernels_.streams.engram_gate(p, rows, scratch); });
}

// --- tokens -------------------------------------------------------------------------------------------------------

void FastOps::draw_tokens(Stream&, const DrawTokensParams& p) {
  pool_.run(p.num_rows, [&](std::int32_t row, std::int32_t worker) { drawers_[static_cast<std::size_t>(worker)].draw(p, row); });
}

}  // namespace deepinfer::cpu

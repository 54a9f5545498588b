// The mixture of experts of FastOps: pairs of rows and experts are ordered by expert, so that each weight is decoded once for all its rows, and
// cut into tasks.
#include <algorithm>

#include "backends/cpu/fast/fast_ops.h"
#include "backends/cpu/fast/fast_tasks.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

// From here on experts are run whole, each by one thread, without waiting for each other between their two steps.
constexpr std::int32_t kSegmentsPerThread = 3;

/// Rows of one step ordered by expert: pairs of (row, expert), experts ascending, the shared expert last.
struct Dispatch {
  std::int32_t* row;     // [pairs]
  float* scale;          // [pairs]
  std::int32_t* places;  // [rows, top_k + 1] pair of each expert of a row, ascending, then the shared one
  std::int32_t* first;   // [experts + 2] first pair of each expert; experts is the shared one
};

Dispatch group_by_expert(const MoeParams& p, Range rows, Scratch& scratch) {
  const std::int64_t routed = std::int64_t{rows.size()} * p.top_k;
  Dispatch out = {scratch.take<std::int32_t>(routed + rows.size()), scratch.take<float>(routed + rows.size()),
                  scratch.take<std::int32_t>(routed + rows.size()), scratch.take<std::int32_t>(p.num_experts + 2)};
  std::fill_n(out.first, p.num_experts + 2, 0);
  const std::int32_t* expert = row_at(p.expert, rows.begin, p.top_k);
  for (std::int64_t i = 0; i < routed; ++i) {
    ++out.first[expert[i] + 1];
  }
  for (std::int32_t e = 0; e < p.num_experts; ++e) {
    out.first[e + 1] += out.first[e];
  }
  std::int32_t* next = scratch.take<std::int32_t>(p.num_experts);
  std::copy_n(out.first, p.num_experts, next);
  const auto add = [&](std::int32_t pair, std::int32_t row, float scale) {
    out.row[pair] = row;
    out.scale[pair] = scale;
  };
  for (std::int32_t r = 0; r < rows.size(); ++r) {
    std::int32_t* place = row_at(out.places, r, p.top_k + 1);
    for (std::int32_t i = 0; i < p.top_k; ++i) {
      place[i] = next[expert[r * p.top_k + i]]++;
      add(place[i], rows.begin + r, row_at(p.expert_weight, rows.begin + r, p.top_k)[i]);
    }
    place[p.top_k] = static_cast<std::int32_t>(routed) + r;
    add(place[p.top_k], rows.begin + r, 1.0F);
  }
  out.first[p.num_experts + 1] = static_cast<std::int32_t>(routed) + rows.size();
  return out;
}

/// One expert's pairs, at most a block of them.
struct Segment {
  std::int32_t expert;
  Range pairs;
};

}  // namespace

void FastOps::moe(Stream&, const MoeParams& p) {
  // Intermediate values of the rows taken together stay below about 8 MB.
  const std::int64_t bytes_per_row = std::int64_t{p.top_k + 1} * (2 * p.hidden + p.intermediate);
  const auto together = static_cast<std::int32_t>(std::clamp<std::int64_t>((std::int64_t{8} << 20) / bytes_per_row, kRowBlock, 4096));
  for (std::int32_t r = 0; r < p.num_rows; r += together) {
    moe_rows(p, {r, std::min(p.num_rows, r + together)});
  }
}

void FastOps::moe_rows(const MoeParams& p, Range rows) {
  shared_.reset();
  const Dispatch dispatch = group_by_expert(p, rows, shared_);
  const std::int64_t num_pairs = std::int64_t{rows.size()} * (p.top_k + 1);
  const ExpertBatch batch = {.row = dispatch.row,
                             .scale = dispatch.scale,
                             .act_codes = shared_.take<std::uint8_t>(num_pairs * p.intermediate),
                             .act_scales = shared_.take<std::uint8_t>(num_pairs * p.intermediate / kQ8Group),
                             .out = shared_.take<bf16>(num_pairs * p.hidden)};
  Segment* segments = shared_.take<Segment>(num_pairs);
  std::int32_t num_segments = 0;
  for (std::int32_t i = 0; i <= p.num_experts; ++i) {
    const std::int32_t e = i == 0 ? p.num_experts : i - 1;  // the shared expert has the most bytes: first, so that it does not end alone
    // Blocks of equal size: a small rest would decode the weights for little.
    const std::int32_t count = dispatch.first[e + 1] - dispatch.first[e];
    const std::int32_t blocks = divide_up(count, most_rows(p.hidden, num_pairs));
    for (std::int32_t block = 0; block < blocks; ++block) {
      const std::int64_t begin = std::int64_t{count} * block / blocks;
      const std::int64_t end = std::int64_t{count} * (block + 1) / blocks;
      segments[num_segments++] = {
          e, {dispatch.first[e] + static_cast<std::int32_t>(begin), dispatch.first[e] + static_cast<std::int32_t>(end)}};
    }
  }
  const auto weights_of = [&](const Segment& segment) { return segment.expert < p.num_experts ? &p.experts[segment.expert] : &p.shared; };
  const auto expert_of = [&](const Segment& segment) {
    ExpertBatch own = batch;
    own.weights = weights_of(segment);
    return own;
  };
  if (num_segments >= kSegmentsPerThread * pool_.num_threads()) {
    for_tasks(num_segments, [&](std::int32_t task, Scratch& scratch) {
      ExpertBatch own = expert_of(segments[task]);
      const std::int32_t next = task + pool_.num_threads();  // what this thread takes when all take turns
      own.next = next < num_segments ? weights_of(segments[next]) : nullptr;
      kernels_.moe.gate_up(p, own, segments[task].pairs, {0, p.intermediate}, scratch);
      scratch.reset();
      kernels_.moe.down(p, own, segments[task].pairs, {0, p.hidden}, scratch);
    });
  } else {
    // Few segments: tasks are (segment, piece of columns), in two steps.
    const auto for_pieces = [&](std::int32_t columns, std::int64_t cost_per_column, const auto& work) {
      const std::int64_t cost = num_pairs * columns * cost_per_column;
      const std::int64_t most = pool_.num_threads() == 1 ? 1 : std::int64_t{pool_.num_threads()} * kTasksPerThread;
      const std::int32_t pieces = divide_up(std::clamp<std::int64_t>(cost / kTaskCost, 1, most), num_segments);
      const std::int32_t step = divide_up(divide_up(columns, pieces), kColumnStep) * kColumnStep;
      const std::int32_t column_pieces = divide_up(columns, step);
      for_tasks(num_segments * column_pieces, [&](std::int32_t task, Scratch& scratch) {
        const Segment& segment = segments[task / column_pieces];
        work(p, expert_of(segment), segment.pairs, piece(task % column_pieces, step, columns), scratch);
      });
    };
    for_pieces(p.intermediate, std::int64_t{2} * p.hidden, kernels_.moe.gate_up);
    for_pieces(p.hidden, p.intermediate, kernels_.moe.down);
  }
  for_rows(rows.size(), {std::int64_t{p.top_k + 1} * p.hidden}, [&](Range part, Scratch&) {
    const Range absolute = {rows.begin + part.begin, rows.begin + part.end};
    kernels_.moe.combine(p, batch.out, dispatch.places - std::int64_t{rows.begin} * (p.top_k + 1), absolute);
  });
}

}  // namespace deepinfer::cpu

// Index scores, candidate blocks and the list of the best compressed rows (docs/spec/model.md 5.4 "Index list").
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Indices of the `count` largest scores, ties to the smaller index, ascending. NaN ranks lowest; kNever is never chosen.
std::vector<std::int32_t> best_indices(const std::vector<float>& scores, std::size_t count) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > kNever) {
      order.push_back(static_cast<std::int32_t>(i));
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), count));
  std::sort(order.begin(), order.end());
  return order;
}

void write_padded(const std::vector<std::int32_t>& indices, std::int32_t* out, std::int32_t width) {
  std::fill(std::copy(indices.begin(), indices.end(), out), out + width, -1);
}

/// The query of one row: heads * index_dim values, rotated and quantised, and the head weights.
struct Query {
  std::vector<float> values;
  std::vector<float> head_weight;
};

Query make_query(const IndexSelectParams& p, std::int64_t r) {
  Query query;
  const std::int32_t half = p.rope_dim / 2;
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.index_dim) * p.heads));
  std::vector<bf16> x(p.index_dim);
  std::vector<std::uint8_t> codes(p.index_dim / 2);
  std::vector<std::uint8_t> scales(p.index_dim / kQ4IndexGroup);
  for (std::int64_t head = 0; head < p.heads; ++head) {
    std::copy_n(row_at(p.q, r * p.heads + head, p.index_dim), p.index_dim, x.begin());
    rotate_pairs(x.data() + (p.index_dim - p.rope_dim), p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim, Direction::forward);
    quantise_q4_index(x.data(), p.index_dim, codes.data(), scales.data());
    for (std::int32_t i = 0; i < p.index_dim; ++i) {
      query.values.push_back(q4_index_value(codes.data(), scales.data(), i));
    }
    query.head_weight.push_back(to_float(to_bf16(to_float(p.head_weight[r * p.heads + head]) * factor)));
  }
  return query;
}

float score_of(const IndexSelectParams& p, const Query& query, std::int64_t chunk, std::int64_t j) {
  const IndexKey key = index_key(p, chunk, j);
  double score = 0;
  for (std::int32_t head = 0; head < p.heads; ++head) {
    double dot = 0;
    for (std::int32_t i = 0; i < p.index_dim; ++i) {
      dot += static_cast<double>(query.values[head * p.index_dim + i]) * q4_index_value(key.codes, key.scales, i);
    }
    score += query.head_weight[head] * std::max(dot, 0.0);
  }
  return static_cast<float>(score);
}

/// Best blocks by the maximum over their visible rows; the newest block always takes part.
std::vector<std::int32_t> candidate_blocks(const IndexSelectParams& p, const std::vector<float>& scores) {
  std::vector<float> best((scores.size() + p.candidate_block_size - 1) / p.candidate_block_size, std::numeric_limits<float>::lowest());
  for (std::size_t j = 0; j < scores.size(); ++j) {
    float& block = best[j / p.candidate_block_size];
    block = std::max(block, scores[j]);
  }
  if (!best.empty()) {
    best.back() = std::numeric_limits<float>::infinity();
  }
  return best_indices(best, p.candidate_top_blocks);
}

/// Rows outside the candidate blocks get a score that is never chosen.
void keep_candidates(const IndexSelectParams& p, const std::int32_t* candidates, std::vector<float>& scores) {
  std::vector<float> kept(scores.size(), kNever);
  for (std::int32_t i = 0; i < p.candidate_top_blocks && candidates[i] >= 0; ++i) {
    const std::size_t first = static_cast<std::size_t>(candidates[i]) * p.candidate_block_size;
    const std::size_t end = std::min(first + p.candidate_block_size, scores.size());
    for (std::size_t j = first; j < end; ++j) {
      kept[j] = scores[j];
    }
  }
  scores = std::move(kept);
}

}  // namespace

void ReferenceOps::index_select(Stream&, const IndexSelectParams& p) {
  for (std::int64_t r = 0; r < p.rows.num_rows; ++r) {
    const Query query = make_query(p, r);
    std::vector<float> scores((p.rows.position[r] + 1) / p.ratio);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const float score = score_of(p, query, p.rows.chunk[r], static_cast<std::int64_t>(j));
      scores[j] = std::isnan(score) ? std::numeric_limits<float>::lowest() : score;
    }
    if (p.candidate_mode == CandidateMode::produce) {
      write_padded(candidate_blocks(p, scores), row_at(p.candidates, r, p.candidate_top_blocks), p.candidate_top_blocks);
    } else if (p.candidate_mode == CandidateMode::restrict) {
      keep_candidates(p, row_at(p.candidates, r, p.candidate_top_blocks), scores);
    }
    write_padded(best_indices(scores, p.top_k), row_at(p.list, r, p.top_k), p.top_k);
  }
}

}  // namespace deepinfer::cpu

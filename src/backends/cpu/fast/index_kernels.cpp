// Index scores and the list of the best compressed rows (docs/spec/model.md 5.4 "Index list"). Sixteen keys are scored at once: their
// packed codes are transposed bytewise, lanes are keys. Sums of one 32-block are exact; blocks and heads are added in order.
#include <limits>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/fast/largest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/index_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/columns-inl.h"
#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kQueryHeads = 4;  ///< heads that share the loaded keys

// --- queries and keys ---------------------------------------------------------------------------------------------

/// The query of one row, heads padded to a multiple of kQueryHeads with weight 0.
struct Query {
  float* codes;        // [heads, index_dim] values without scale
  float* scales;       // [heads, index_dim / 32]
  float* head_weight;  // [heads]
};

/// Room for one head while a query is made.
struct HeadBuffers {
  bf16* row;
  float* values;
  std::uint8_t* packed;
  std::uint8_t* scales;
};

inline HeadBuffers take_head_buffers(const IndexSelectParams& p, Scratch& scratch) {
  return {scratch.take<bf16>(p.index_dim), scratch.take<float>(p.index_dim), scratch.take<std::uint8_t>(p.index_dim / 2),
          scratch.take<std::uint8_t>(p.index_dim / kQ4IndexGroup)};
}

[[nodiscard]] inline std::int32_t padded_heads(const IndexSelectParams& p) {
  return (p.heads + kQueryHeads - 1) / kQueryHeads * kQueryHeads;
}

inline Query take_query(const IndexSelectParams& p, Scratch& scratch) {
  const std::int64_t heads = padded_heads(p);
  return {scratch.take<float>(heads * p.index_dim), scratch.take<float>(heads * p.index_dim / kQ4IndexGroup), scratch.take<float>(heads)};
}

/// Rotates, quantises and unpacks the query of row r.
inline void make_query(const IndexSelectParams& p, std::int64_t r, const HeadBuffers& head_buffers, const Query& query) {
  const auto [row, values, packed, scales] = head_buffers;
  const std::int32_t half = p.rope_dim / 2;
  const std::int32_t groups = p.index_dim / kQ4IndexGroup;
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.index_dim) * p.heads));
  std::fill_n(query.codes, static_cast<std::int64_t>(padded_heads(p)) * p.index_dim, 0.0F);
  std::fill_n(query.scales, static_cast<std::int64_t>(padded_heads(p)) * groups, 0.0F);
  std::fill_n(query.head_weight, padded_heads(p), 0.0F);
  for (std::int64_t head = 0; head < p.heads; ++head) {
    std::copy_n(row_at(p.q, r * p.heads + head, p.index_dim), p.index_dim, row);
    rotate_row<Direction::forward>(row + (p.index_dim - p.rope_dim), p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim);
    for (std::int32_t i = 0; i < p.index_dim; i += kLanes) {
      store(load(row + i), values + i);
    }
    quantise_q4_index_row(values, p.index_dim, packed, scales);
    decode_e2m1_plain(
        packed, p.index_dim, [](std::int32_t) { return 1.0F; }, row_at(query.codes, head, p.index_dim));
    for (std::int32_t g = 0; g < groups; ++g) {
      row_at(query.scales, head, groups)[g] = ue8m0_to_float(scales[g]);
    }
    query.head_weight[head] = to_float(to_bf16(to_float(row_at(p.head_weight, r, p.heads)[head]) * factor));
  }
}

/// Sixteen keys as operands.
struct KeyTile {
  float* codes;   // [index_dim, kKeyTile] values without scale
  float* scales;  // [index_dim / 32, kKeyTile]
};

inline KeyTile take_key_tile(const IndexSelectParams& p, Scratch& scratch) {
  return {scratch.take<float>(static_cast<std::int64_t>(p.index_dim) * kKeyTile),
          scratch.take<float>(static_cast<std::int64_t>(p.index_dim) / kQ4IndexGroup * kKeyTile)};
}

/// Loads keys row(0) .. row(count - 1) of a chunk; lanes without a key repeat the first one.
template <class Row>
inline void load_keys(const IndexSelectParams& p, std::int64_t chunk, std::int32_t count, const Row& row, const KeyTile& tile) {
  IndexKey keys[kKeyTile];
  for (std::int32_t i = 0; i < kKeyTile; ++i) {
    keys[i] = index_key(p, chunk, row(i < count ? i : 0));
  }
  for (std::int32_t group = 0; group < p.index_dim / kQ4IndexGroup; ++group) {
    UnitRows<std::uint8_t> bytes;
    for (std::int32_t i = 0; i < kKeyTile; ++i) {
      bytes.at[i] = keys[i].codes + group * kQ4IndexGroup / 2;
      tile.scales[group * kKeyTile + i] = ue8m0_to_float(keys[i].scales[group]);
    }
    float* out = tile.codes + static_cast<std::int64_t>(group) * kQ4IndexGroup * kKeyTile;
    e2m1_columns(bytes, [&](std::int32_t place, const F16& values) HWY_ATTR { store16(values, out + place * kKeyTile); });
  }
}

/// scores[16] = sum over heads of weight * max(0, query . key).
HWY_NOINLINE void score_tile(const IndexSelectParams& p, const Query& query, const KeyTile& tile, float* scores) {
  const DF d;
  const std::int32_t groups = p.index_dim / kQ4IndexGroup;
  F16 score = zero16();
  for (std::int32_t head = 0; head < padded_heads(p); head += kQueryHeads) {
    F16 total[kQueryHeads] = {zero16(), zero16(), zero16(), zero16()};
    for (std::int32_t group = 0; group < groups; ++group) {
      F16 dot[kQueryHeads] = {zero16(), zero16(), zero16(), zero16()};
      const float* q = row_at(query.codes, head, p.index_dim) + group * kQ4IndexGroup;
      const float* key = tile.codes + group * kQ4IndexGroup * kKeyTile;
      for (std::int32_t i = 0; i < kQ4IndexGroup; ++i) {
        const F16 k = load16(key + i * kKeyTile);
        HWY_UNROLL(4)
        for (std::int32_t h = 0; h < kQueryHeads; ++h) {
          const VF value = hn::Set(d, q[h * p.index_dim + i]);
          HWY_UNROLL(16)
          for (std::int32_t part = 0; part < kParts; ++part) {
            dot[h].part[part] = add_exact_product(value, k.part[part], dot[h].part[part]);
          }
        }
      }
      const F16 key_scale = load16(tile.scales + group * kKeyTile);
      HWY_UNROLL(4)
      for (std::int32_t h = 0; h < kQueryHeads; ++h) {
        const VF query_scale = hn::Set(d, query.scales[(head + h) * groups + group]);
        HWY_UNROLL(16)
        for (std::int32_t part = 0; part < kParts; ++part) {
          const VF scaled = hn::Mul(hn::Mul(dot[h].part[part], key_scale.part[part]), query_scale);
          total[h].part[part] = hn::Add(total[h].part[part], scaled);
        }
      }
    }
    HWY_UNROLL(4)
    for (std::int32_t h = 0; h < kQueryHeads; ++h) {
      const VF weight = hn::Set(d, query.head_weight[head + h]);
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        const VF positive = hn::Max(total[h].part[part], hn::Zero(d));
        score.part[part] = hn::Add(score.part[part], hn::Mul(weight, positive));
      }
    }
  }
  store16(score, scores);
}

// --- selection ----------------------------------------------------------------------------------------------------

/// As find_threshold, bit by bit: of few codes counting those above a bound takes less than counting digits. `rest` has room for a multiple of kLanes.
HWY_NOINLINE Threshold find_threshold_of_few(const std::uint32_t* codes, std::int32_t num_codes, std::int32_t count, std::uint32_t* rest) {
  const DU du;
  std::copy_n(codes, num_codes, rest);
  const std::int32_t padded = (num_codes + kLanes - 1) / kLanes * kLanes;
  std::fill(rest + num_codes, rest + padded, 0U);  // above no bound
  const auto count_above = [&](std::uint32_t bound) HWY_ATTR {
    const VU bounds = hn::Set(du, bound);
    std::size_t out = 0;
    for (std::int32_t i = 0; i < padded; i += kLanes) {
      out += hn::CountTrue(du, hn::Gt(hn::LoadU(du, rest + i), bounds));
    }
    return static_cast<std::int32_t>(out);
  };
  std::uint32_t threshold = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1U) {
    threshold |= count_above((threshold | bit) - 1) >= count ? bit : 0;
  }
  return {threshold, count - count_above(threshold)};
}

/// Room to choose among some number of rows.
struct PickBuffers {
  std::uint32_t* codes;
  std::uint32_t* blocks;
  std::uint32_t* rest;
};

inline PickBuffers take_pick_buffers(std::int32_t num_rows, Scratch& scratch) {
  return {scratch.take<std::uint32_t>(num_rows), scratch.take<std::uint32_t>(num_rows), scratch.take<std::uint32_t>(num_rows + kVirtualLanes)};
}

inline void pick_largest(const std::uint32_t* codes, std::int32_t num_codes, std::int32_t count, std::int32_t* out, std::uint32_t* rest) {
  constexpr std::int32_t kFewCodes = 1024;
  cpu::pick_largest(codes, num_codes, count, out, [=](std::int32_t chosen) {
    return num_codes <= kFewCodes ? find_threshold_of_few(codes, num_codes, chosen, rest) : find_threshold(codes, num_codes, chosen, rest);
  });
}

/// Best blocks by the maximum over their rows; the newest block always takes part.
inline void pick_candidates(const IndexSelectParams& p, std::int32_t num_rows, std::int32_t* candidates, const PickBuffers& buffers) {
  const std::int32_t size = p.candidate_block_size;
  const std::int32_t num_blocks = (num_rows + size - 1) / size;
  for (std::int32_t block = 0; block < num_blocks; ++block) {
    buffers.blocks[block] = *std::max_element(buffers.codes + block * size, buffers.codes + std::min(num_rows, (block + 1) * size));
  }
  if (num_blocks > 0) {
    buffers.blocks[num_blocks - 1] = rank_code(std::numeric_limits<float>::infinity());
  }
  pick_largest(buffers.blocks, num_blocks, p.candidate_top_blocks, candidates, buffers.rest);
}

/// Candidates and list of one row from the scores of its visible rows.
inline void pick_row(const IndexSelectParams& p, std::int32_t row, const float* scores, const PickBuffers& buffers) {
  const std::int32_t visible = (p.rows.position[row] + 1) / p.ratio;
  for (std::int32_t j = 0; j < visible; ++j) {
    buffers.codes[j] = rank_code(scores[j]);
  }
  if (p.candidate_mode == CandidateMode::produce) {
    pick_candidates(p, visible, row_at(p.candidates, row, p.candidate_top_blocks), buffers);
  }
  pick_largest(buffers.codes, visible, p.top_k, row_at(p.list, row, p.top_k), buffers.rest);
}

void pick(const IndexSelectParams& p, std::int32_t row, const float* scores, Scratch& scratch) {
  pick_row(p, row, scores, take_pick_buffers((p.rows.position[row] + 1) / p.ratio, scratch));
}

// --- rows ---------------------------------------------------------------------------------------------------------

/// True when every visible row is listed and every block is a candidate, so that scores decide nothing.
[[nodiscard]] inline bool is_trivial(const IndexSelectParams& p, std::int32_t visible) {
  const bool produces = p.candidate_mode == CandidateMode::produce;
  return visible <= p.top_k && (!produces || visible <= p.candidate_top_blocks * p.candidate_block_size);
}

inline void count_up(std::int32_t* out, std::int32_t count, std::int32_t width) {
  for (std::int32_t i = 0; i < width; ++i) {
    out[i] = i < count ? i : -1;
  }
}

inline void write_trivial(const IndexSelectParams& p, std::int32_t row, std::int32_t visible) {
  count_up(row_at(p.list, row, p.top_k), visible, p.top_k);
  if (p.candidate_mode == CandidateMode::produce) {
    const std::int32_t blocks = (visible + p.candidate_block_size - 1) / p.candidate_block_size;
    count_up(row_at(p.candidates, row, p.candidate_top_blocks), blocks, p.candidate_top_blocks);
  }
}

/// List of one row that may only choose inside its candidate blocks.
class RestrictedSelect {
 public:
  RestrictedSelect(const IndexSelectParams& p, Scratch& scratch)
      : p_(p), head_(take_head_buffers(p, scratch)), query_(take_query(p, scratch)), tile_(take_key_tile(p, scratch)) {
    const std::int32_t most = p.candidate_top_blocks * p.candidate_block_size + kKeyTile;
    rows_ = scratch.take<std::int32_t>(most);
    scores_ = scratch.take<float>(most);
    buffers_ = take_pick_buffers(most, scratch);
  }

  void run(std::int32_t row) {
    const std::int32_t count = collect_rows(row);
    std::int32_t* list = row_at(p_.list, row, p_.top_k);
    if (count <= p_.top_k) {
      std::fill(std::copy_n(rows_, count, list), list + p_.top_k, -1);
      return;
    }
    make_query(p_, row, head_, query_);
    for (std::int32_t first = 0; first < count; first += kKeyTile) {
      load_keys(
          p_, p_.rows.chunk[row], std::min(kKeyTile, count - first), [&](std::int32_t i) { return rows_[first + i]; }, tile_);
      score_tile(p_, query_, tile_, scores_ + first);
    }
    for (std::int32_t i = 0; i < count; ++i) {
      buffers_.codes[i] = rank_code(scores_[i]);
    }
    pick_largest(buffers_.codes, count, p_.top_k, list, buffers_.rest);
    for (std::int32_t i = 0; i < p_.top_k && list[i] >= 0; ++i) {
      list[i] = rows_[list[i]];
    }
  }

 private:
  /// The visible rows of the candidate blocks, ascending.
  std::int32_t collect_rows(std::int32_t row) {
    const std::int32_t visible = (p_.rows.position[row] + 1) / p_.ratio;
    const std::int32_t* candidates = row_at(p_.candidates, row, p_.candidate_top_blocks);
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < p_.candidate_top_blocks && candidates[i] >= 0; ++i) {
      const std::int32_t end = std::min(visible, (candidates[i] + 1) * p_.candidate_block_size);
      for (std::int32_t j = candidates[i] * p_.candidate_block_size; j < end; ++j) {
        rows_[count++] = j;
      }
    }
    return count;
  }

  const IndexSelectParams& p_;
  HeadBuffers head_;
  Query query_;
  KeyTile tile_;
  std::int32_t* rows_;
  float* scores_;
  PickBuffers buffers_;
};

void score(const IndexSelectParams& p, std::int32_t row, Range keys, float* scores, Scratch& scratch) {
  const Query query = take_query(p, scratch);
  const KeyTile tile = take_key_tile(p, scratch);
  make_query(p, row, take_head_buffers(p, scratch), query);
  for (std::int32_t first = keys.begin; first < keys.end; first += kKeyTile) {
    load_keys(
        p, p.rows.chunk[row], std::min(kKeyTile, keys.end - first), [&](std::int32_t i) { return first + i; }, tile);
    score_tile(p, query, tile, scores + first);
  }
}

/// Rows of one chunk, not restricted: keys are unpacked once for all of them.
inline void select_together(const IndexSelectParams& p, Range rows, Scratch& scratch) {
  const std::int32_t most = (p.rows.position[rows.end - 1] + 1) / p.ratio;
  const std::int64_t stride = (most + kKeyTile - 1) / kKeyTile * kKeyTile;
  const KeyTile tile = take_key_tile(p, scratch);
  float* scores = scratch.take<float>(stride * rows.size());
  Query* queries = scratch.take<Query>(rows.size());
  const HeadBuffers head = take_head_buffers(p, scratch);
  for (std::int32_t r = 0; r < rows.size(); ++r) {
    queries[r] = take_query(p, scratch);
    make_query(p, rows.begin + r, head, queries[r]);
  }
  for (std::int32_t first = 0; first < most; first += kKeyTile) {
    load_keys(
        p, p.rows.chunk[rows.begin], std::min(kKeyTile, most - first), [&](std::int32_t i) { return first + i; }, tile);
    for (std::int32_t r = 0; r < rows.size(); ++r) {
      if (first < (p.rows.position[rows.begin + r] + 1) / p.ratio) {
        score_tile(p, queries[r], tile, scores + r * stride + first);
      }
    }
  }
  const PickBuffers buffers = take_pick_buffers(most, scratch);
  for (std::int32_t r = 0; r < rows.size(); ++r) {
    pick_row(p, rows.begin + r, scores + r * stride, buffers);
  }
}

void index_select(const IndexSelectParams& p, Range rows, Scratch& scratch) {
  if (p.candidate_mode == CandidateMode::restrict) {
    RestrictedSelect select(p, scratch);
    for (std::int32_t r = rows.begin; r < rows.end; ++r) {
      select.run(r);
    }
    return;
  }
  for (std::int32_t r = rows.begin; r < rows.end;) {
    const std::int32_t visible = (p.rows.position[r] + 1) / p.ratio;
    if (is_trivial(p, visible)) {
      write_trivial(p, r++, visible);
      continue;
    }
    std::int32_t end = r + 1;
    while (end < rows.end && p.rows.chunk[end] == p.rows.chunk[r]) {
      ++end;
    }
    select_together(p, {r, end}, scratch);
    r = end;
  }
}

IndexKernels make_index_kernels() { return {index_select, score, pick}; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_index_kernels);
IndexKernels index_kernels() { return HWY_DYNAMIC_DISPATCH(make_index_kernels)(); }
}  // namespace deepinfer::cpu
#endif

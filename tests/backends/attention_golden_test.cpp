// Attention goldens of the Python reference on every kernel set: core with arbitrary visibility, compressor, index lists, candidates.
#include <algorithm>

#include "backends/cpu/block_codecs.h"
#include "backends/golden_fixture.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kHidden = 128;
constexpr std::int32_t kHeadDim = 64;

/// One request whose rows start at position 0, its blocks in order.
ChunkTable one_chunk(OpMemory& memory, std::int32_t rows, std::int32_t blocks) {
  return {.num_chunks = 1,
          .first_row = memory.put(std::vector<std::int32_t>{0}),
          .num_rows = memory.put(std::vector<std::int32_t>{rows}),
          .first_position = memory.put(std::vector<std::int32_t>{0}),
          .slot = memory.put(std::vector<std::int32_t>{0}),
          .block_table = memory.put(first_rows(blocks)),
          .max_blocks = blocks};
}

RowTable rows_from_zero(OpMemory& memory, std::int32_t rows) {
  return {.num_rows = rows,
          .position = memory.put(first_rows(rows)),
          .chunk = memory.put(std::vector<std::int32_t>(static_cast<std::size_t>(rows)))};
}

/// Rows of a mask [queries, width] as ascending lists padded with -1.
std::vector<std::int32_t> lists_of(const std::vector<std::uint8_t>& mask, std::size_t width, std::size_t list_width) {
  std::vector<std::int32_t> out;
  for (std::size_t first = 0; first < mask.size(); first += width) {
    const std::size_t start = out.size();
    for (std::size_t j = 0; j < width; ++j) {
      if (mask[first + j] != 0) {
        out.push_back(static_cast<std::int32_t>(j));
      }
    }
    out.resize(start + list_width, -1);
  }
  return out;
}

using AttentionGolden = GoldenTest;

TEST_P(AttentionGolden, CoreWithSinksAndAnyVisibility) {
  const GoldenFile file = golden("modules/attention_core");
  const auto keys = file.values<bf16>("keys");
  const auto visible = file.values<std::uint8_t>("visible");
  constexpr std::int32_t kRows = 5;
  constexpr std::int32_t kKeys = 30;
  // Every query becomes a chunk of its own whose window holds exactly the keys it sees.
  std::vector<bf16> own;
  std::vector<std::int32_t> first_row, count, low(kRows, 0), high, chunk = first_rows(kRows);
  for (std::size_t r = 0; r < kRows; ++r) {
    first_row.push_back(static_cast<std::int32_t>(own.size() / kHeadDim));
    for (std::size_t j = 0; j < kKeys; ++j) {
      if (visible[r * kKeys + j] != 0) {
        own.insert(own.end(), keys.begin() + static_cast<std::ptrdiff_t>(j * kHeadDim),
                   keys.begin() + static_cast<std::ptrdiff_t>((j + 1) * kHeadDim));
      }
    }
    count.push_back(static_cast<std::int32_t>(own.size() / kHeadDim) - first_row.back());
    high.push_back(count.back() - 1);
  }
  std::vector<std::uint8_t> records;
  for (std::size_t first = 0; first < own.size(); first += kHeadDim) {
    std::vector<std::uint8_t> record(window_record_bytes(kHeadDim));
    cpu::quantise_q8(own.data() + first, kHeadDim, record.data(), record.data() + kHeadDim);
    records.insert(records.end(), record.begin(), record.end());
  }
  const std::int32_t* zeros = memory_->put(std::vector<std::int32_t>(kRows));
  bf16* o = memory_->room<bf16>(kRows * 8 * kHeadDim);
  ops().attend(stream(), {.rows = {kRows, memory_->put(high), memory_->put(chunk)},
                          .chunks = {kRows, memory_->put(first_row), memory_->put(count), zeros, zeros, zeros, 1},
                          .heads = 8,
                          .head_dim = kHeadDim,
                          .rope_dim = 16,
                          .ring_rows = 16,
                          .q = memory_->put(file.values<bf16>("query")),
                          .own = memory_->put(records),
                          .ring = nullptr,
                          .window_low = memory_->put(low),
                          .window_high = memory_->put(high),
                          .max_window = 16,
                          .sink = memory_->put(file.values<float>("sink")),
                          .rope = {memory_->put(std::vector<float>(kRows * 8, 1.0F)), memory_->put(std::vector<float>(kRows * 8, 0.0F))},
                          .o = o,
                          .q8 = {}});
  EXPECT_LE(relative_l2(read_bf16(o, kRows * 8 * kHeadDim), widen(file.values<bf16>("output"))), 2e-3);
}

TEST_P(AttentionGolden, CompressorRowsAndIndexKeys) {
  for (const std::int32_t layer : {2, 4, 6}) {
    SCOPED_TRACE(layer);
    const GoldenFile file = golden("modules/compressor_layer" + std::to_string(layer));
    const std::string prefix = "layers." + std::to_string(layer) + ".attn.";
    const std::int32_t ratio = layer == 6 ? 1 : 2;
    constexpr std::int32_t kRows = 41;
    const std::int32_t stored = kRows / ratio;
    const bf16* u = memory_->put(file.values<bf16>("input"));
    bf16* pooled = memory_->room<bf16>(static_cast<std::size_t>(stored * kHeadDim));
    LinearBf16Params wkv{.num_rows = kRows, .n = kHeadDim, .k = kHidden, .x = u, .weight = product(prefix + "compressor.wkv.weight")};
    if (ratio == 1) {
      wkv.y_bf16 = pooled;
      ops().linear_bf16(stream(), wkv);
    } else {
      float* value = memory_->room<float>(kRows * kHeadDim);
      float* gate = memory_->room<float>(kRows * kHeadDim);
      wkv.y_f32 = value;
      ops().linear_bf16(stream(), wkv);
      wkv.weight = product(prefix + "compressor.wgate.weight");
      wkv.y_f32 = gate;
      ops().linear_bf16(stream(), wkv);
      std::vector<std::int32_t> second;
      for (std::int32_t row = 1; row < kRows; row += 2) {
        second.push_back(row);
      }
      float* tail = memory_->room<float>(7 * 2 * kHeadDim);
      ops().compress_pairs(stream(), {.rows = rows_from_zero(*memory_, kRows),
                                      .chunks = one_chunk(*memory_, kRows, 1),
                                      .head_dim = kHeadDim,
                                      .tail_rows = 7,
                                      .num_groups = stored,
                                      .group_row = memory_->put(second),
                                      .value = value,
                                      .gate = gate,
                                      .tail = tail,
                                      .pooled = pooled});
      // The unfinished token 40 stays in the tail; the golden holds [value, gate].
      const std::vector<float> held = memory_->read(tail + 40 % 7 * 2 * kHeadDim, 2 * kHeadDim);
      const std::vector<float> pending = file.values<float>("pending");
      EXPECT_LE(relative_l2({held.begin(), held.begin() + kHeadDim}, {pending.begin() + kHeadDim, pending.end()}), 1e-5);
      EXPECT_LE(relative_l2({held.begin() + kHeadDim, held.end()}, {pending.begin(), pending.begin() + kHeadDim}), 1e-5);
    }
    const bf16* latent = norm(pooled, stored, kHeadDim, prefix + "compressor.norm.weight");
    EXPECT_LE(relative_l2(read_bf16(latent, static_cast<std::size_t>(stored * kHeadDim)), widen(file.values<bf16>("latents"))), 2e-3);

    const RopeTable table = rope("yarn", stored, ratio);
    const std::int32_t* place = memory_->put(first_rows(stored));
    const std::int32_t per_block = kBlockPositions / ratio;
    bf16* key = memory_->room<bf16>(static_cast<std::size_t>(stored * kHeadDim));
    ops().linear_bf16(
        stream(),
        {.num_rows = stored, .n = kHeadDim, .k = kHeadDim, .x = latent, .weight = product(prefix + "indexer.wk.weight"), .y_bf16 = key});
    std::uint8_t* keys = memory_->room<std::uint8_t>(static_cast<std::size_t>(per_block * index_key_bytes(kHeadDim)));
    ops().store_index_keys(stream(), {.num_rows = stored,
                                      .index_dim = kHeadDim,
                                      .rope_dim = 16,
                                      .rows_per_block = per_block,
                                      .x = key,
                                      .weight = weight<bf16>(prefix + "indexer.k_norm.weight"),
                                      .norm_eps = kNormEps,
                                      .rope = table,
                                      .row_place = place,
                                      .keys = keys});
    std::uint8_t* rows = memory_->room<std::uint8_t>(static_cast<std::size_t>(per_block * compressed_record_bytes(kHeadDim)));
    ops().store_compressed(
        stream(),
        {.num_rows = stored, .head_dim = kHeadDim, .rope_dim = 16, .x = latent, .rope = table, .row_place = place, .compressed = rows});

    const auto block = memory_->read(keys, static_cast<std::size_t>(per_block * index_key_bytes(kHeadDim)));
    const auto records = memory_->read(rows, static_cast<std::size_t>(stored * compressed_record_bytes(kHeadDim)));
    std::vector<float> index_values;
    std::vector<float> row_values;
    for (std::int32_t j = 0; j < stored; ++j) {
      const std::uint8_t* record = records.data() + j * compressed_record_bytes(kHeadDim);
      for (std::int32_t i = 0; i < kHeadDim; ++i) {
        index_values.push_back(
            cpu::q4_index_value(block.data() + j * kHeadDim / 2, block.data() + per_block * kHeadDim / 2 + j * kHeadDim / 32, i));
        row_values.push_back(cpu::q4_kv_value(record, record + kHeadDim / 2, i));
      }
    }
    EXPECT_LE(relative_l2(index_values, widen(file.values<bf16>("index_keys"))), 2e-2);
    EXPECT_LE(relative_l2(row_values, widen(file.values<bf16>("kv"))), 2e-2);
  }
}

/// Packs decoded Q4i keys into blocks again: the codes are on the grid, so nothing is lost.
std::vector<std::uint8_t> pack_keys(const std::vector<bf16>& keys, std::int32_t index_dim) {
  const auto rows = static_cast<std::int32_t>(keys.size()) / index_dim;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(kBlockPositions * index_key_bytes(index_dim)));
  for (std::int32_t j = 0; j < rows; ++j) {
    cpu::quantise_q4_index(keys.data() + j * index_dim, index_dim, out.data() + j * index_dim / 2,
                           out.data() + kBlockPositions * index_dim / 2 + j * index_dim / kQ4IndexGroup);
  }
  return out;
}

TEST_P(AttentionGolden, IndexListsAndCandidates) {
  const GoldenFile file = golden("modules/indexer");
  constexpr std::int32_t kRows = 64;
  const bf16* u = memory_->put(file.values<bf16>("input"));
  std::int32_t* candidates = memory_->room<std::int32_t>(kRows * 8);
  for (const std::string layer : {"6", "8"}) {
    SCOPED_TRACE(layer);
    const std::string prefix = "layers." + layer + ".attn.indexer.";
    const Q8Rows qr = q8(memory_->put(file.values<bf16>("layer" + layer + ".latent_query")), kRows, 64);
    bf16* head_weight = memory_->room<bf16>(kRows * 4);
    ops().linear_bf16(
        stream(),
        {.num_rows = kRows, .n = 4, .k = kHidden, .x = u, .weight = product(prefix + "weights_proj.weight"), .y_bf16 = head_weight});
    std::int32_t* list = memory_->room<std::int32_t>(kRows * 16);
    ops().index_select(stream(), {.rows = rows_from_zero(*memory_, kRows),
                                  .chunks = one_chunk(*memory_, kRows, 1),
                                  .heads = 4,
                                  .index_dim = kHeadDim,
                                  .rope_dim = 16,
                                  .ratio = 1,
                                  .rows_per_block = kBlockPositions,
                                  .top_k = 16,
                                  .q = linear(qr, kRows, quantised(prefix + "wq_b"), 256, 64),
                                  .head_weight = head_weight,
                                  .rope = rope("yarn", kRows),
                                  .keys = memory_->put(pack_keys(file.values<bf16>("index_keys"), kHeadDim)),
                                  .list = list,
                                  .candidate_mode = layer == "6" ? CandidateMode::produce : CandidateMode::restrict,
                                  .candidate_block_size = 4,
                                  .candidate_top_blocks = 8,
                                  .candidates = candidates});
    EXPECT_EQ(memory_->read(list, kRows * 16), lists_of(file.values<std::uint8_t>("layer" + layer + ".selected"), kRows, 16));
  }
  // The golden marks rows; a block is a candidate when its first row is marked (invisible rows of the newest block are marked too).
  const auto marked = file.values<std::uint8_t>("candidate_rows");
  std::vector<std::uint8_t> blocks;
  for (std::size_t i = 0; i < marked.size(); i += 4) {
    blocks.push_back(marked[i]);
  }
  EXPECT_EQ(memory_->read(candidates, kRows * 8), lists_of(blocks, kRows / 4, 8));
}

TEST_P(AttentionGolden, CandidateBlocksWithTies) {
  const GoldenFile file = golden("modules/candidate_blocks");
  const auto scores = file.values<float>("scores");
  constexpr std::int32_t kRows = 61;
  // Key j is the unit vector j, so a query's values are its scores; the negative ones come from a second head of weight -1.
  std::vector<bf16> keys(static_cast<std::size_t>(kRows) * 64);
  std::vector<bf16> q(static_cast<std::size_t>(kRows) * 2 * 64);
  std::vector<bf16> head_weight;
  for (std::size_t r = 0; r < kRows; ++r) {
    keys[r * 64 + r] = to_bf16(1.0F);
    head_weight.push_back(to_bf16(1.0F));
    head_weight.push_back(to_bf16(-1.0F));
    for (std::size_t j = 0; j <= r; ++j) {
      const float score = scores[r * kRows + j];
      q[r * 128 + j] = to_bf16(std::max(score, 0.0F));
      q[r * 128 + 64 + j] = to_bf16(std::max(-score, 0.0F));
    }
  }
  std::int32_t* candidates = memory_->room<std::int32_t>(kRows * 8);
  ops().index_select(stream(), {.rows = rows_from_zero(*memory_, kRows),
                                .chunks = one_chunk(*memory_, kRows, 1),
                                .heads = 2,
                                .index_dim = 64,
                                .rope_dim = 2,
                                .ratio = 1,
                                .rows_per_block = kBlockPositions,
                                .top_k = 16,
                                .q = memory_->put(q),
                                .head_weight = memory_->put(head_weight),
                                .rope = {memory_->put(std::vector<float>(kRows, 1.0F)), memory_->put(std::vector<float>(kRows, 0.0F))},
                                .keys = memory_->put(pack_keys(keys, 64)),
                                .list = memory_->room<std::int32_t>(kRows * 16),
                                .candidate_mode = CandidateMode::produce,
                                .candidate_block_size = 4,
                                .candidate_top_blocks = 8,
                                .candidates = candidates});
  const auto kept = file.values<std::uint8_t>("kept_rows");
  std::vector<std::uint8_t> blocks;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t j = 0; j < kRows; j += 4) {
      blocks.push_back(kept[r * kRows + j]);
    }
  }
  EXPECT_EQ(memory_->read(candidates, kRows * 8), lists_of(blocks, 16, 8));
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionGolden, testing::ValuesIn(golden_implementations()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace deepinfer::test

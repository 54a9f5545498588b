// What must not go wrong at the edges: NaN stays in its row, rows without keys give zeros, bad scores give valid lists; the device itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/implementations.h"
#include "backends/op_cases/op_case.h"

namespace deepinfer::test {
namespace {

class Edges : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    device_ = make_implementation(GetParam());
    memory_ = std::make_unique<OpMemory>(*device_);
  }
  std::vector<OpOutput> run(const OpCase& op_case, std::span<const std::int32_t> rows) {
    PreparedOp prepared = op_case.prepare(*device_, rows);
    prepared.run(device_->ops(), prepared.memory->stream());
    return prepared.outputs();
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<OpMemory> memory_;
};

TEST_P(Edges, NotANumberStaysInItsRow) {
  for (const OpCase& op_case : contract_table()) {
    const std::vector<std::string> without = {"embed",      "rope_table",       "engram_gather",    "attend",         "index_select",
                                              "store_ring", "store_index_keys", "store_compressed", "compress_pairs", "gather_cells"};
    if (std::ranges::count(without, op_case.op) > 0) {
      continue;
    }
    SCOPED_TRACE(op_case.op + " " + op_case.shape);
    const std::vector<std::int32_t> clean_rows = {0, 2, 3, 5, 6, 8};
    std::vector<std::int32_t> poisoned_rows = clean_rows;
    poisoned_rows[2] += kPoisoned;
    const std::vector<OpOutput> clean = run(op_case, clean_rows);
    const std::vector<OpOutput> poisoned = run(op_case, poisoned_rows);
    bool any_nan = false;
    for (std::size_t i = 0; i < clean.size(); ++i) {
      const std::int64_t width = clean[i].bytes_per_row;
      for (std::int64_t row = 0; row < 6 && width > 0; ++row) {
        const auto* expected = clean[i].bytes.data() + row * width;
        EXPECT_TRUE(row == 2 || std::equal(expected, expected + width, poisoned[i].bytes.data() + row * width))
            << clean[i].name << " " << row;
      }
      const std::size_t per_row = poisoned[i].values.size() / 6;
      any_nan = any_nan ||
                std::any_of(poisoned[i].values.begin() + static_cast<std::ptrdiff_t>(2 * per_row),
                            poisoned[i].values.begin() + static_cast<std::ptrdiff_t>(3 * per_row), [](float v) { return std::isnan(v); });
    }
    EXPECT_TRUE(any_nan || op_case.op == "quantise" || op_case.op == "draw_tokens");
  }
}

TEST_P(Edges, ARowWithoutFiniteLogitsHasNotANumberWeightsAndValidExperts) {
  std::vector<bf16> u(3 * 32, to_bf16(1.0F));
  u[32] = to_bf16(std::nanf(""));
  u[64] = to_bf16(INFINITY);
  std::int32_t* expert = memory_->room<std::int32_t>(9);
  float* weight = memory_->room<float>(9);
  const float* bias = memory_->put(std::vector<float>(5));
  device_->ops().route(memory_->stream(), {.num_rows = 3,
                                           .hidden = 32,
                                           .num_experts = 5,
                                           .top_k = 3,
                                           .u = memory_->put(u),
                                           .weight = {memory_->put(std::vector<bf16>(5 * 32, to_bf16(0.25F)))},
                                           .bias = bias,
                                           .bias_image = bias,
                                           .routed_scaling = 1.5F,
                                           .expert = expert,
                                           .expert_weight = weight});
  const auto ids = memory_->read(expert, 9);
  const auto weights = memory_->read(weight, 9);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(ids[i], static_cast<std::int32_t>(i % 3));  // equal scores: the smaller ids
    EXPECT_EQ(std::isnan(weights[i]), i >= 3) << i;
  }
}

/// A step of single-row chunks at the given positions, blocks in order, slot 0.
struct Rows {
  RowTable rows;
  ChunkTable chunks;
};

Rows single_rows(OpMemory& memory, const std::vector<std::int32_t>& positions) {
  const auto count = static_cast<std::int32_t>(positions.size());
  const std::int32_t* each = memory.put(first_rows(count));
  const std::int32_t* position = memory.put(positions);
  const std::int32_t* ones = memory.put(std::vector<std::int32_t>(positions.size(), 1));
  const std::int32_t* zeros = memory.put(std::vector<std::int32_t>(positions.size(), 0));
  return {{count, position, each}, {count, each, ones, position, zeros, zeros, 1}};
}

/// Four queries: one key, none, one key and a NaN in the query, one key that is NaN.
void expect_attention_at_the_edges(Ops& ops, OpMemory& memory, std::int32_t heads, std::int32_t dim) {
  SCOPED_TRACE(std::to_string(heads) + " heads of " + std::to_string(dim));
  const Rows step = single_rows(memory, {0, 1, 2, 3});
  const auto count = static_cast<std::size_t>(4 * heads * dim);
  const std::int32_t record = window_record_bytes(dim);
  std::vector<bf16> q = random_bf16(3, first_rows(4), heads * dim);
  const std::vector<bf16> clean_q = q;
  q[static_cast<std::size_t>(2 * heads * dim)] = to_bf16(std::nanf(""));
  const Q8Rows keys = put_q8(memory, 2, first_rows(4), dim);
  std::vector<std::uint8_t> records;
  const auto codes = memory.read(keys.codes, static_cast<std::size_t>(4 * dim));
  const auto scales = memory.read(keys.scales, static_cast<std::size_t>(4 * dim / kQ8Group));
  for (std::size_t r = 0; r < 4; ++r) {
    records.insert(records.end(), codes.begin() + static_cast<std::ptrdiff_t>(r * dim),
                   codes.begin() + static_cast<std::ptrdiff_t>((r + 1) * dim));
    records.insert(records.end(), scales.begin() + static_cast<std::ptrdiff_t>(r * dim / kQ8Group),
                   scales.begin() + static_cast<std::ptrdiff_t>((r + 1) * dim / kQ8Group));
  }
  records[static_cast<std::size_t>(3 * record)] = 0x7F;  // the window row of query 3 is NaN
  bf16* o[2] = {memory.room<bf16>(count), memory.room<bf16>(count)};
  const Q8Rows q8 = {memory.room<std::uint8_t>(count), memory.room<std::uint8_t>(count / kQ8Group)};
  const bf16* const queries[2] = {memory.put(clean_q), memory.put(q)};
  for (int i = 0; i < 2; ++i) {
    ops.attend(memory.stream(), {.rows = step.rows,
                                 .chunks = step.chunks,
                                 .heads = heads,
                                 .head_dim = dim,
                                 .rope_dim = 4,
                                 .ring_rows = 8,
                                 .q = queries[i],
                                 .own = memory.put(records),
                                 .ring = memory.put(std::vector<std::uint8_t>(static_cast<std::size_t>(8 * record), 0x7F)),
                                 .window_low = memory.put(std::vector<std::int32_t>{0, 2, 2, 3}),
                                 .window_high = memory.put(std::vector<std::int32_t>{0, 1, 2, 3}),
                                 .max_window = 8,
                                 .list = memory.put(std::vector<std::int32_t>(4 * 2, -1)),
                                 .top_k = 2,
                                 .ratio = 1,
                                 .rows_per_block = 128,
                                 .compressed = nullptr,
                                 .sink = memory.put(std::vector<float>(static_cast<std::size_t>(heads))),
                                 .rope = put_rope(memory, std::vector<std::int32_t>{0, 1, 2, 3}, 4),
                                 .o = o[i],
                                 .q8 = q8});
  }
  const auto clean = memory.read(o[0], count);
  const auto dirty = memory.read(o[1], count);
  const auto row = [&](const std::vector<bf16>& all, std::size_t r) {
    return std::vector<bf16>(all.begin() + static_cast<std::ptrdiff_t>(r * heads * dim),
                             all.begin() + static_cast<std::ptrdiff_t>((r + 1) * heads * dim));
  };
  EXPECT_TRUE(std::ranges::all_of(row(clean, 1), [](bf16 v) { return to_float(v) == 0.0F; }));
  EXPECT_EQ(row(clean, 0), row(dirty, 0));
  EXPECT_EQ(row(clean, 1), row(dirty, 1));
  EXPECT_TRUE(std::ranges::any_of(row(dirty, 2), [](bf16 v) { return std::isnan(to_float(v)); }));
  EXPECT_TRUE(std::isnan(to_float(row(clean, 3)[0])));
  const auto stored = memory.read(q8.codes, count);
  EXPECT_TRUE(
      std::any_of(stored.begin() + 2 * heads * dim, stored.begin() + 3 * heads * dim, [](std::uint8_t c) { return (c & 0x7FU) == 0x7FU; }));
}

TEST_P(Edges, AttentionWithoutKeysGivesZerosAndNotANumberStaysInItsQuery) {
  expect_attention_at_the_edges(device_->ops(), *memory_, 3, 32);
  expect_attention_at_the_edges(device_->ops(), *memory_, 64, 512);
}

TEST_P(Edges, IndexListsStayValidWhateverTheScores) {
  constexpr std::int32_t kDim = 32;
  const Rows step = single_rows(*memory_, {40, 41, 42, 0});
  std::vector<bf16> head_weight = {to_bf16(std::nanf("")), to_bf16(-INFINITY), to_bf16(0.0F), to_bf16(1.0F)};
  std::int32_t* list = memory_->room<std::int32_t>(4 * 8);
  std::int32_t* candidates = memory_->room<std::int32_t>(4 * 8);
  std::vector<std::uint8_t> keys(static_cast<std::size_t>(64 * index_key_bytes(kDim)), 0x7F);
  device_->ops().index_select(memory_->stream(), {.rows = step.rows,
                                                  .chunks = step.chunks,
                                                  .heads = 1,
                                                  .index_dim = kDim,
                                                  .rope_dim = 4,
                                                  .ratio = 2,
                                                  .rows_per_block = 64,
                                                  .top_k = 8,
                                                  .q = memory_->put(std::vector<bf16>(4 * kDim, to_bf16(1.0F))),
                                                  .head_weight = memory_->put(head_weight),
                                                  .rope = put_rope(*memory_, std::vector<std::int32_t>{40, 41, 42, 0}, 4),
                                                  .keys = memory_->put(keys),
                                                  .list = list,
                                                  .candidate_mode = CandidateMode::produce,
                                                  .candidate_block_size = 4,
                                                  .candidate_top_blocks = 8,
                                                  .candidates = candidates});
  const auto lists = memory_->read(list, 4 * 8);
  const std::vector<std::int32_t> visible = {20, 21, 21, 0};
  for (std::size_t r = 0; r < 4; ++r) {
    std::int32_t previous = -1;
    bool ended = false;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::int32_t j = lists[r * 8 + i];
      ended = ended || j < 0;
      EXPECT_TRUE(ended ? j == -1 : j > previous && j < visible[r]) << "row " << r;
      previous = j;
    }
  }
  // All scores of query 2 are zero: the smaller rows. Query 3 sees no row.
  EXPECT_EQ(std::vector<std::int32_t>(lists.begin() + 16, lists.begin() + 24), first_rows(8));
  EXPECT_EQ(std::vector<std::int32_t>(lists.begin() + 24, lists.end()), std::vector<std::int32_t>(8, -1));
  EXPECT_EQ(memory_->read(candidates + 24, 8), std::vector<std::int32_t>(8, -1));
}

std::vector<Implementation> all_implementations() {
  std::vector<Implementation> out = fast_implementations();
  out.push_back(reference_implementation());
  std::ranges::copy(gpu_implementations(), std::back_inserter(out));
  return out;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Edges, testing::ValuesIn(all_implementations()), [](const auto& test) { return test.param.name; });

TEST(CpuDevice, AllocatesAlignedMemoryAndCopies) {
  for (const bool reference : {false, true}) {
    const std::unique_ptr<Device> device = cpu::make_device({.num_threads = 2, .use_reference_kernels = reference});
    EXPECT_EQ(device->info().name, "cpu");
    EXPECT_GT(device->info().memory_bytes, 0U);
    EXPECT_FALSE(device->info().description.empty());
    EXPECT_EQ(device->info().num_threads, reference ? 1 : 2);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
      const Buffer buffer = device->allocate(size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
      EXPECT_EQ(buffer.size_bytes(), size);
    }
    EXPECT_EQ(device->allocate(std::numeric_limits<std::size_t>::max() - 10).data(), nullptr);
    const std::unique_ptr<Stream> stream = device->make_stream();
    const std::vector<std::int32_t> from = {1, 2, 3};
    std::vector<std::int32_t> to(3);
    stream->copy(to.data(), from.data(), 12);
    stream->synchronize();
    EXPECT_EQ(to, from);
  }
}

}  // namespace
}  // namespace deepinfer::test

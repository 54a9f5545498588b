// Modules of the Python reference (tests/data/goldens/modules) on every kernel set: norms, rotations, linears, streams, experts, Engram.
// Bounds: the README of the goldens (fp32 1e-5, bf16 2e-3 relative L2; integers equal).
#include <algorithm>

#include "backends/golden_fixture.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kHidden = 128;
constexpr std::int32_t kStreams = 4;

using ModuleGolden = GoldenTest;

TEST_P(ModuleGolden, RmsNormKeepsZeroTinyAndLargeRows) {
  const GoldenFile file = golden("modules/rms_norm");
  const auto x = file.values<bf16>("input");
  const bf16* y = norm(memory_->put(x), 6, kHidden, "norm.weight");
  EXPECT_LE(relative_l2(read_bf16(y, x.size()), widen(file.values<bf16>("output"))), 2e-3);
}

TEST_P(ModuleGolden, RotationTurnsForwardAndBack) {
  const GoldenFile file = golden("modules/rope");
  const auto positions = file.values<std::int32_t>("positions");
  const auto rows = static_cast<std::int32_t>(positions.size());
  for (const std::string kind : {"plain", "yarn"}) {
    const auto frequency = file.values<float>(kind + ".frequencies");
    const std::size_t count = positions.size() * frequency.size();
    float* cos = memory_->room<float>(count);
    float* sin = memory_->room<float>(count);
    ops().rope_table(stream(), {.num_rows = rows,
                                .half_dim = 8,
                                .position = memory_->put(positions),
                                .frequency = memory_->put(frequency),
                                .cos = cos,
                                .sin = sin});
    EXPECT_EQ(memory_->read(cos, count), file.values<float>(kind + ".cos"));
    EXPECT_EQ(memory_->read(sin, count), file.values<float>(kind + ".sin"));
    std::vector<float> negative = memory_->read(sin, count);
    std::ranges::transform(negative, negative.begin(), std::negate());
    const float* const sines[] = {sin, memory_->put(negative)};
    const std::string names[] = {kind + ".output", kind + ".inverse_output"};
    for (int i = 0; i < 2; ++i) {
      bf16* x = memory_->put(file.values<bf16>("input"));
      ops().rotate(stream(), {.num_rows = rows, .heads = 2, .head_dim = 64, .rope_dim = 16, .rope = {cos, sines[i]}, .x = x});
      EXPECT_LE(relative_l2(read_bf16(x, static_cast<std::size_t>(rows) * 128), widen(file.values<bf16>(names[i]))), 2e-4) << names[i];
    }
  }
}

TEST_P(ModuleGolden, LinearsOfBothFormats) {
  const GoldenFile file = golden("modules/linear");
  const bf16* fp8 = linear(q8(memory_->put(file.values<bf16>("fp8_input")), 8, kHidden), 8, quantised("layers.2.attn.wq_a"), 64, kHidden);
  EXPECT_LE(relative_l2(read_bf16(fp8, 8 * 64), widen(file.values<bf16>("fp8_output"))), 2e-3);
  const bf16* fp4 = linear(q8(memory_->put(file.values<bf16>("fp4_input")), 8, 64), 8, quantised("layers.2.ffn.experts.0.w2"), kHidden, 64);
  EXPECT_LE(relative_l2(read_bf16(fp4, 8 * kHidden), widen(file.values<bf16>("fp4_output"))), 2e-3);
}

TEST_P(ModuleGolden, OutputProjectionInGroups) {
  const GoldenFile file = golden("modules/linear");
  const RopeTable table = rope("yarn", 8);
  std::vector<float> negative = memory_->read(table.sin, 8 * 8);
  std::ranges::transform(negative, negative.begin(), std::negate());
  bf16* o = memory_->put(file.values<bf16>("attention_output_input"));
  ops().rotate(stream(), {.num_rows = 8, .heads = 8, .head_dim = 64, .rope_dim = 16, .rope = {table.cos, memory_->put(negative)}, .x = o});
  const bf16* z = linear(q8(o, 8, 512), 8, quantised("layers.2.attn.wo_a"), 32, 256, 2);
  const bf16* y = linear(q8(z, 8, 64), 8, quantised("layers.2.attn.wo_b"), kHidden, 64);
  EXPECT_LE(relative_l2(read_bf16(y, 8 * kHidden), widen(file.values<bf16>("attention_output"))), 2e-3);
}

TEST_P(ModuleGolden, HyperConnections) {
  const GoldenFile file = golden("modules/hyper_connections");
  const auto h = file.values<bf16>("streams");
  constexpr std::int32_t kRows = 40;
  float* pre = memory_->room<float>(kRows * kStreams);
  float* post = memory_->room<float>(kRows * kStreams);
  float* comb = memory_->room<float>(kRows * kStreams * kStreams);
  bf16* streams = memory_->put(h);
  ops().mix(stream(), {.num_rows = kRows,
                       .streams = kStreams,
                       .hidden = kHidden,
                       .h = streams,
                       .fn = weight<float>("layers.3.hc_ffn_fn"),
                       .base = weight<float>("layers.3.hc_ffn_base"),
                       .scale = weight<float>("layers.3.hc_ffn_scale"),
                       .sinkhorn_iterations = 20,
                       .mix_eps = 1e-6F,
                       .norm_eps = kNormEps,
                       .pre = pre,
                       .post = post,
                       .comb = comb});
  EXPECT_LE(relative_l2(memory_->read(pre, kRows * 4), file.values<float>("pre")), 1e-5);
  EXPECT_LE(relative_l2(memory_->read(post, kRows * 4), file.values<float>("post")), 1e-5);
  EXPECT_LE(relative_l2(memory_->read(comb, kRows * 16), file.values<float>("comb")), 1e-5);
  bf16* x = memory_->room<bf16>(kRows * kHidden);
  ops().collapse_norm(stream(), {.num_rows = kRows,
                                 .streams = kStreams,
                                 .hidden = kHidden,
                                 .h = streams,
                                 .pre = pre,
                                 .weight = weight<bf16>("norm.weight"),
                                 .norm_eps = kNormEps,
                                 .x = x,
                                 .y = memory_->room<bf16>(kRows * kHidden),
                                 .q8 = {}});
  EXPECT_LE(relative_l2(read_bf16(x, kRows * kHidden), widen(file.values<bf16>("collapsed"))), 2e-3);
  ops().expand(stream(), {.num_rows = kRows,
                          .streams = kStreams,
                          .hidden = kHidden,
                          .y = memory_->put(file.values<bf16>("sublayer_output")),
                          .post = post,
                          .comb = comb,
                          .h = streams});
  EXPECT_LE(relative_l2(read_bf16(streams, h.size()), widen(file.values<bf16>("expanded"))), 2e-3);
}

TEST_P(ModuleGolden, MixtureOfExperts) {
  const GoldenFile file = golden("modules/moe");
  constexpr std::int32_t kRows = 40;
  const bf16* u = memory_->put(file.values<bf16>("input"));
  std::int32_t* expert = memory_->room<std::int32_t>(kRows * 3);
  float* scale = memory_->room<float>(kRows * 3);
  ops().route(stream(), {.num_rows = kRows,
                         .hidden = kHidden,
                         .num_experts = 8,
                         .top_k = 3,
                         .u = u,
                         .weight = product("layers.3.ffn.gate.weight"),
                         .bias = weight<float>("layers.3.ffn.gate.bias"),
                         .bias_image = weight<float>("layers.3.ffn.gate.bias_vl"),
                         .is_image = memory_->put(file.values<std::uint8_t>("is_image")),
                         .routed_scaling = 1.5F,
                         .expert = expert,
                         .expert_weight = scale});
  // The golden is in rank order, the operation gives ascending ids.
  const auto ranked = file.values<std::int32_t>("experts");
  const auto ranked_weight = file.values<float>("weights");
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  for (std::size_t r = 0; r < kRows; ++r) {
    std::vector<std::pair<std::int32_t, float>> row;
    for (std::size_t i = 3 * r; i < 3 * r + 3; ++i) {
      row.emplace_back(ranked[i], ranked_weight[i]);
    }
    std::ranges::sort(row);
    for (const auto& [id, value] : row) {
      ids.push_back(id);
      weights.push_back(value);
    }
  }
  EXPECT_EQ(memory_->read(expert, kRows * 3), ids);
  EXPECT_LE(relative_l2(memory_->read(scale, kRows * 3), weights), 1e-5);

  const auto weights_of = [&](const std::string& prefix) {
    return ExpertWeights{quantised(prefix + ".w1"), quantised(prefix + ".w3"), quantised(prefix + ".w2")};
  };
  std::vector<ExpertWeights> experts;
  for (int e = 0; e < 8; ++e) {
    experts.push_back(weights_of("layers.3.ffn.experts." + std::to_string(e)));
  }
  bf16* y = memory_->room<bf16>(kRows * kHidden);
  ops().moe(stream(), {.num_rows = kRows,
                       .hidden = kHidden,
                       .intermediate = 64,
                       .num_experts = 8,
                       .top_k = 3,
                       .x = q8(u, kRows, kHidden),
                       .expert = expert,
                       .expert_weight = scale,
                       .experts = memory_->put(experts),
                       .shared = weights_of("layers.3.ffn.shared_experts"),
                       .swiglu_limit = 2.0F,
                       .y = y});
  EXPECT_LE(relative_l2(read_bf16(y, kRows * kHidden), widen(file.values<bf16>("output"))), 2e-3);
}

TEST_P(ModuleGolden, EqualScoresRouteToTheSmallerExpert) {
  const json::Value cases = read_json(std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens/modules/routing_ties.json");
  const json::Array& rows = *cases.find("scores")->as_array();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<float> bias;  // all logits are zero, the bias alone decides
    for (const double score : numbers(rows[r])) {
      bias.push_back(static_cast<float>(score));
    }
    std::int32_t* expert = memory_->room<std::int32_t>(3);
    const bf16* zeros = memory_->put(std::vector<bf16>(8 * 32));
    ops().route(stream(), {.num_rows = 1,
                           .hidden = 32,
                           .num_experts = 8,
                           .top_k = 3,
                           .u = zeros,
                           .weight = {zeros},
                           .bias = memory_->put(bias),
                           .routed_scaling = 1.5F,
                           .expert = expert,
                           .expert_weight = memory_->room<float>(3)});
    std::vector<std::int32_t> expected = integers((*cases.find("top3")->as_array())[r]);
    std::ranges::sort(expected);
    EXPECT_EQ(memory_->read(expert, 3), expected) << "row " << r;
  }
}

TEST_P(ModuleGolden, EngramLookupAndGate) {
  const GoldenFile file = golden("modules/engram");
  const json::Value info = read_json(std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens/modules/engram.json");
  constexpr std::int32_t kRows = 16;
  constexpr std::int32_t kWidth = 6 * 32;
  std::vector<std::uint8_t> is_image(kRows);
  for (const std::int32_t position : integers(*info.find("image_positions"))) {
    is_image[position] = 1;
  }
  for (const std::string layer : {"1", "4"}) {
    std::vector<std::int32_t> ids;
    for (const json::Value& row : *info.find("rows_layer" + layer)->as_array()) {
      std::ranges::copy(integers(row), std::back_inserter(ids));
    }
    const std::string prefix = "layers." + layer + ".engram.";
    const Q8Rows e = room_q8(kRows, kWidth);
    ops().engram_gather(stream(), {.num_rows = kRows,
                                   .columns = 6,
                                   .row_dim = 32,
                                   .row_id = memory_->put(ids),
                                   .codes = weight<std::uint8_t>(prefix + "embed.weight"),
                                   .scales = weight<std::uint8_t>(prefix + "embed.scale"),
                                   .e = e});
    const bf16* kv = linear(e, kRows, quantised(prefix + "wkv"), 5 * kHidden, kWidth);
    bf16* h = memory_->put(file.values<bf16>("streams"));
    ops().engram_gate(stream(), {.num_rows = kRows,
                                 .streams = kStreams,
                                 .hidden = kHidden,
                                 .kv = kv,
                                 .q_weight = weight<bf16>(prefix + "q_weight"),
                                 .k_weight = weight<bf16>(prefix + "k_weight"),
                                 .is_image = memory_->put(is_image),
                                 .norm_eps = kNormEps,
                                 .h = h});
    EXPECT_LE(relative_l2(read_bf16(h, kRows * kStreams * kHidden), widen(file.values<bf16>("layer" + layer + ".output"))), 2e-3) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ModuleGolden, testing::ValuesIn(golden_implementations()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace deepinfer::test

// The shapes of the contract table: tiny and nano model, and sizes that fit no vector.
#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

void add_stream_cases(std::vector<OpCase>& table) {
  for (const StreamShape shape : {StreamShape{4, 128}, StreamShape{4, 256}, StreamShape{2, 96}, StreamShape{3, 32}}) {
    table.push_back(embed_case(shape));
    table.push_back(mix_case(shape));
    table.push_back(collapse_norm_case(shape));
    table.push_back(expand_case(shape));
    table.push_back(mean_streams_case(shape));
    table.push_back(engram_gate_case(shape));
  }
  table.push_back(engram_gather_case({6, 32}));
  table.push_back(engram_gather_case({3, 256}));
}

void add_row_cases(std::vector<OpCase>& table) {
  table.push_back(rms_norm_case(128, 128));
  table.push_back(rms_norm_case(64, 160));
  table.push_back(rms_norm_case(1280, 1280));
  table.push_back(quantise_case(32));
  table.push_back(quantise_case(224));
  table.push_back(rope_table_case(8));
  table.push_back(rope_table_case(5));
  for (const HeadShape shape : {HeadShape{8, 64, 16}, HeadShape{3, 32, 10}, HeadShape{2, 512, 64}, HeadShape{1, 32, 2}}) {
    table.push_back(rotate_case(shape));
    table.push_back(window_rows_case(shape));
    table.push_back(store_index_keys_case(shape));
    table.push_back(store_compressed_case(shape));
    table.push_back(store_ring_case(shape));
    table.push_back(compress_pairs_case(shape));
  }
}

void add_linear_cases(std::vector<OpCase>& table) {
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::fp4}) {
    table.push_back(linear_q8_case({format, 1, 64, 128}));
    table.push_back(linear_q8_case({format, 1, 128, 256}));
    table.push_back(linear_q8_case({format, 1, 37, 32}));
    table.push_back(linear_q8_case({format, 1, 1, 1600}));  // longer than one panel
    table.push_back(linear_q8_case({format, 1, 100, 544}));
  }
  table.push_back(linear_q8_case({WeightFormat::fp8, 4, 64, 128}));
  table.push_back(linear_q8_case({WeightFormat::fp8, 3, 24, 96}));  // groups share a block of scales
  table.push_back(linear_bf16_case(24, 256, LinearResult::f32));
  table.push_back(linear_bf16_case(24, 256, LinearResult::f32_from_rows));
  table.push_back(add_rows_case(50));
  table.push_back(add_rows_case(1056));
  table.push_back(linear_bf16_case(50, 1056, LinearResult::bf16));
  table.push_back(linear_bf16_case(8, 128, LinearResult::bf16));
  table.push_back(linear_bf16_case(33, 70, LinearResult::f32));  // odd width
  table.push_back(linear_bf16_case(33, 70, LinearResult::f32_from_rows));
  table.push_back(linear_bf16_case(1, 288, LinearResult::f32));
  table.push_back(linear_bf16_case(515, 64, LinearResult::f32_by_index));
  table.push_back(linear_bf16_case(300, 64, LinearResult::bf16_with_bias));
  table.push_back(linear_bf16_case(32, 588, LinearResult::bf16_with_bias));
}

void add_moe_cases(std::vector<OpCase>& table) {
  for (const MoeShape shape :
       {MoeShape{128, 64, 8, 3, 2.0F}, MoeShape{256, 64, 24, 6, 10.0F}, MoeShape{32, 32, 4, 1, 0.0F}, MoeShape{96, 160, 5, 2, 1.0F}}) {
    table.push_back(route_case(shape));
    table.push_back(moe_case(shape));
  }
  table.push_back(route_case({64, 0, 384, 6}));
}

void add_attention_cases(std::vector<OpCase>& table) {
  for (const HeadShape shape : {HeadShape{8, 64, 16}, HeadShape{3, 32, 10}, HeadShape{20, 64, 16}}) {
    table.push_back(attend_case({.head = shape, .window = 16}));
    table.push_back(attend_case({.head = shape, .window = 16, .top_k = 16, .ratio = 2}));
    table.push_back(attend_case({.head = shape, .window = 32, .top_k = 64, .ratio = 1, .first_position = 300}));
    table.push_back(attend_case({.head = shape, .window = 16, .first_position = 100, .sees_block = true}));
  }
  for (const HeadShape shape : {HeadShape{4, 64, 16}, HeadShape{8, 32, 16}, HeadShape{5, 128, 64}}) {
    table.push_back(index_select_case({.head = shape, .ratio = 1, .top_k = 16}));
    table.push_back(index_select_case({.head = shape, .ratio = 2, .top_k = 16, .first_position = 700}));
    table.push_back(index_select_case({.head = shape, .ratio = 1, .top_k = 32, .first_position = 500, .has_uneven_scales = true}));
    table.push_back(
        index_select_case({.head = shape, .ratio = 1, .top_k = 16, .mode = CandidateMode::produce, .block_size = 4, .top_blocks = 8}));
    table.push_back(index_select_case({.head = shape,
                                       .ratio = 1,
                                       .top_k = 64,
                                       .first_position = 1500,
                                       .mode = CandidateMode::produce,
                                       .block_size = 8,
                                       .top_blocks = 32}));
    table.push_back(
        index_select_case({.head = shape, .ratio = 1, .top_k = 16, .mode = CandidateMode::restrict, .block_size = 4, .top_blocks = 8}));
    table.push_back(index_select_case({.head = shape,
                                       .ratio = 1,
                                       .top_k = 64,
                                       .first_position = 900,
                                       .mode = CandidateMode::restrict,
                                       .block_size = 8,
                                       .top_blocks = 32}));
  }
}

void add_vision_cases(std::vector<OpCase>& table) {
  table.push_back(rotate_halves_case({4, 16, 0}, 96));
  table.push_back(rotate_halves_case({3, 64, 0}, 192));
  table.push_back(attend_all_case({2, 16, 0}, 20));
  table.push_back(attend_all_case({3, 64, 0}, 150));
  table.push_back(attend_all_case({1, 20, 0}, 1));
  table.push_back(attend_all_case({1, 128, 0}, 64));
  table.push_back(add_case(32));
  table.push_back(add_case(37));
  table.push_back(silu_product_case(48));
  table.push_back(silu_product_case(21));
  table.push_back(gelu_case(128));
  table.push_back(gather_cells_case(32, 3));
  table.push_back(gather_cells_case(5, 2));
}

}  // namespace

std::vector<OpCase> contract_table() {
  std::vector<OpCase> table;
  add_stream_cases(table);
  add_row_cases(table);
  add_linear_cases(table);
  add_moe_cases(table);
  add_attention_cases(table);
  add_vision_cases(table);
  for (const std::int32_t vocab : {1, 33, 1056, 10'001}) {
    table.push_back(draw_tokens_case(vocab));
  }
  return table;
}

std::vector<OpCase> real_table() {
  constexpr StreamShape kStreams = {4, 5120};
  return {embed_case(kStreams),
          mix_case(kStreams),
          collapse_norm_case(kStreams),
          expand_case(kStreams),
          engram_gate_case(kStreams),
          engram_gather_case({24, 256}),
          rms_norm_case(1280, 1280),
          linear_q8_case({WeightFormat::fp8, 1, 128, 5120}),
          linear_q8_case({WeightFormat::fp8, 1, 96, 8192}),
          linear_q8_case({WeightFormat::fp8, 8, 128, 4096}),
          linear_q8_case({WeightFormat::fp8, 1, 4096, 1280}),
          linear_q8_case({WeightFormat::fp4, 1, 128, 5120}),
          linear_q8_case({WeightFormat::fp4, 1, 96, 5120}),
          linear_q8_case({WeightFormat::fp4, 1, 128, 2304}),
          linear_bf16_case(48, 5120, LinearResult::bf16),
          linear_bf16_case(512, 5120, LinearResult::f32),
          linear_bf16_case(512, 5120, LinearResult::f32_from_rows),
          rotate_case({64, 512, 64}),
          window_rows_case({1, 512, 64}),
          store_index_keys_case({1, 128, 64}),
          store_compressed_case({1, 512, 64}),
          compress_pairs_case({1, 512, 64}),
          attend_case({.head = {64, 512, 64}, .window = 128}),
          attend_case({.head = {64, 512, 64}, .window = 128, .top_k = 512, .ratio = 2, .first_position = 1300}),
          index_select_case({.head = {32, 128, 64}, .ratio = 1, .top_k = 512, .first_position = 1300}),
          index_select_case({.head = {32, 128, 64}, .ratio = 2, .top_k = 512, .first_position = 1300, .has_uneven_scales = true}),
          index_select_case({.head = {32, 128, 64},
                             .ratio = 1,
                             .top_k = 512,
                             .first_position = 900,
                             .mode = CandidateMode::produce,
                             .block_size = 8,
                             .top_blocks = 100}),
          index_select_case({.head = {32, 128, 64},
                             .ratio = 1,
                             .top_k = 512,
                             .first_position = 1300,
                             .mode = CandidateMode::restrict,
                             .block_size = 8,
                             .top_blocks = 100}),
          route_case({5120, 0, 384, 6}),
          moe_case({5120, 96, 8, 6}),
          moe_case({1280, 256, 8, 6}),
          linear_bf16_case(64, 9216, LinearResult::bf16_with_bias),
          attend_all_case({2, 64, 0}, 2000)};
}

}  // namespace deepinfer::test

#include "backends/cuda/cuda_ops.h"

#include <algorithm>

#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"
#include "base/check.h"

namespace deepinfer::cuda {
namespace {

/// Scores of a few rows at a time stay below this, mostly within the cache of the GPU.
constexpr std::int64_t kMaxScores = std::int64_t{1} << 23;

/// Calls `work(first, count)` for rows in runs whose scratch stays within kMaxScores.
template <class Work>
void in_runs(std::int64_t num_rows, std::int64_t scores_per_row, const Work& work) {
  const std::int64_t run = std::max<std::int64_t>(1, kMaxScores / std::max<std::int64_t>(1, scores_per_row));
  for (std::int64_t first = 0; first < num_rows; first += run) {
    work(first, std::min(run, num_rows - first));
  }
}

/// Floats of scratch that in_runs() needs.
std::size_t run_scores(std::int64_t num_rows, std::int64_t scores_per_row) {
  const std::int64_t run = std::max<std::int64_t>(1, kMaxScores / std::max<std::int64_t>(1, scores_per_row));
  return static_cast<std::size_t>(std::min(run, num_rows) * scores_per_row);
}

}  // namespace

template <class Work>
void CudaOps::issue(Stream& stream, const Work& work) {
  auto& own = static_cast<CudaStream&>(stream);
  if (own.make_current()) {
    work(own.handle());
    fault_.note(cudaGetLastError());
  }
}

/// The same with scratch memory: `work(memory, stream)`.
template <class Element, class Work>
void CudaOps::with_room(Stream& stream, Scratch Rooms::*scratch, std::size_t count, const Work& work) {
  issue(stream, [&](cudaStream_t handle) {
    Element* const memory = (static_cast<CudaStream&>(stream).rooms().*scratch).template room<Element>(count);
    if (!fault_.is_set()) {
      work(memory, handle);
    }
  });
}

template <class Params>
void CudaOps::launch(void (*kernel)(const Params&, cudaStream_t), const Params& p, Stream& stream) {
  if (p.num_rows > 0) {
    issue(stream, [&](cudaStream_t s) { kernel(p, s); });
  }
}

void CudaOps::embed(Stream& s, const EmbedParams& p) { launch(cuda::embed, p, s); }
void CudaOps::mix(Stream& s, const MixParams& p) { launch(cuda::mix, p, s); }
void CudaOps::collapse_norm(Stream& s, const CollapseNormParams& p) { launch(cuda::collapse_norm, p, s); }
void CudaOps::expand(Stream& s, const ExpandParams& p) { launch(cuda::expand, p, s); }
void CudaOps::mean_streams(Stream& s, const MeanStreamsParams& p) { launch(cuda::mean_streams, p, s); }
void CudaOps::rms_norm(Stream& s, const RmsNormParams& p) { launch(cuda::rms_norm, p, s); }
void CudaOps::quantise(Stream& s, const QuantiseParams& p) { launch(cuda::quantise, p, s); }
void CudaOps::rope_table(Stream& s, const RopeTableParams& p) { launch(cuda::rope_table, p, s); }
void CudaOps::rotate(Stream& s, const RotateParams& p) { launch(cuda::rotate, p, s); }
void CudaOps::add_rows(Stream& s, const AddRowsParams& p) { launch(cuda::add_rows, p, s); }
void CudaOps::window_rows(Stream& s, const WindowRowsParams& p) { launch(cuda::window_rows, p, s); }
void CudaOps::store_index_keys(Stream& s, const StoreIndexKeysParams& p) { launch(cuda::store_index_keys, p, s); }
void CudaOps::store_compressed(Stream& s, const StoreCompressedParams& p) { launch(cuda::store_compressed, p, s); }
void CudaOps::engram_gather(Stream& s, const EngramGatherParams& p) { launch(cuda::engram_gather, p, s); }
void CudaOps::engram_gate(Stream& s, const EngramGateParams& p) { launch(cuda::engram_gate, p, s); }
void CudaOps::draw_tokens(Stream& s, const DrawTokensParams& p) { launch(cuda::draw_tokens, p, s); }
void CudaOps::rotate_halves(Stream& s, const RotateHalvesParams& p) { launch(cuda::rotate_halves, p, s); }
void CudaOps::attend_all(Stream& s, const AttendAllParams& p) { launch(cuda::attend_all, p, s); }
void CudaOps::add(Stream& s, const AddParams& p) { launch(cuda::add, p, s); }
void CudaOps::silu_product(Stream& s, const SiluProductParams& p) { launch(cuda::silu_product, p, s); }
void CudaOps::gelu(Stream& s, const GeluParams& p) { launch(cuda::gelu, p, s); }
void CudaOps::gather_cells(Stream& s, const GatherCellsParams& p) { launch(cuda::gather_cells, p, s); }

/// In pieces that pass through a buffer, so that it stays small.
WeightLayout CudaOps::place_weight(Stream& s, const PlaceWeightParams& p) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 25;
  const WeightFormat format = p.from.format;
  const std::size_t row_bytes = weight_code_bytes(format, 1, p.k);
  const std::int64_t step = std::max<std::int64_t>(1, static_cast<std::int64_t>(kMostBytes / row_bytes) / kUnitRows) * kUnitRows;
  const bool in_units = lies_in_units(format, p.n, p.k);
  for (std::int64_t first = 0; first < p.n; first += step) {
    const std::int64_t rows = std::min(step, p.n - first);
    const std::size_t start = static_cast<std::size_t>(first) * row_bytes;
    const std::size_t size = static_cast<std::size_t>(rows) * row_bytes;
    with_room<std::uint8_t>(s, &Rooms::passing, size, [&](std::uint8_t* passing, cudaStream_t stream) {
      s.copy(passing, p.from.codes + start, size);
      place_codes({.format = format, .rows = rows, .k = p.k, .in_units = in_units, .from = passing, .to = p.codes + start}, stream);
    });
  }
  const std::size_t scale_bytes = weight_scale_bytes(format, p.n, p.k);
  if (format == WeightFormat::fp4 && in_units) {
    with_room<std::uint8_t>(s, &Rooms::passing, scale_bytes, [&](std::uint8_t* passing, cudaStream_t stream) {
      s.copy(passing, p.from.scales, scale_bytes);
      place_scales(p.n, p.k / (kUnitScales * kWeightBlock), passing, p.scales, stream);
    });
  } else {
    s.copy(p.scales, p.from.scales, scale_bytes);
  }
  return WeightLayout::units;  // codes change places within their words whatever the shape
}

void CudaOps::linear_q8(Stream& s, const LinearQ8Params& p) {
  check(p.weight.layout == WeightLayout::units, "this device has placed the weight");
  if (p.num_rows > 0) {
    with_room<bf16>(s, &Rooms::activations, linear_scratch(p), [&](bf16* scratch, cudaStream_t stream) { cuda::linear_q8(p, scratch, stream); });
  }
}

void CudaOps::linear_bf16(Stream& s, const LinearBf16Params& p) {
  if (p.num_rows > 0) {
    with_room<bf16>(s, &Rooms::activations, linear_scratch(p), [&](bf16* scratch, cudaStream_t stream) { cuda::linear_bf16(p, scratch, stream); });
  }
}

void CudaOps::store_ring(Stream& s, const StoreRingParams& p) {
  if (p.chunks.num_chunks > 0) {
    issue(s, [&](cudaStream_t stream) { cuda::store_ring(p, stream); });
  }
}

void CudaOps::compress_pairs(Stream& s, const CompressPairsParams& p) {
  issue(s, [&](cudaStream_t stream) { cuda::compress_pairs(p, stream); });
}

void CudaOps::index_select(Stream& s, const IndexSelectParams& p) {
  const std::int64_t per_row = index_scores_per_row(p);
  with_room<float>(s, &Rooms::partials, run_scores(p.rows.num_rows, per_row), [&](float* scores, cudaStream_t stream) {
    in_runs(p.rows.num_rows, per_row, [&](std::int64_t first, std::int64_t count) { cuda::index_select(p, first, count, scores, stream); });
  });
}

void CudaOps::attend(Stream& s, const AttendParams& p) {
  if (p.rows.num_rows == 0) {
    return;
  }
  const std::int64_t per_row = attend_scratch_per_row(p);
  const bool needs_output = p.o == nullptr && per_row > 0;  // without scratch attention writes Q8 at once
  const std::size_t output = static_cast<std::size_t>(p.rows.num_rows) * static_cast<std::size_t>(p.heads * p.head_dim);
  with_room<float>(s, &Rooms::partials, run_scores(p.rows.num_rows, per_row), [&](float* scores, cudaStream_t) {
    with_room<bf16>(s, &Rooms::activations, needs_output ? output : 0, [&](bf16* room, cudaStream_t stream) {
      bf16* const o = needs_output ? room : p.o;
      in_runs(p.rows.num_rows, per_row, [&](std::int64_t first, std::int64_t count) { attend_rows(p, first, count, scores, o, stream); });
      attend_finish(p, o, stream);
    });
  });
}

void CudaOps::route(Stream& s, const RouteParams& p) {
  if (p.num_rows == 0) {
    return;
  }
  LinearBf16Params scores{.num_rows = p.num_rows,
                          .n = p.num_experts,
                          .k = p.hidden,
                          .x = p.u,
                          .row_index = nullptr,
                          .weight = p.weight,
                          .y_f32 = nullptr,
                          .y_bf16 = nullptr};
  const std::size_t num_scores = static_cast<std::size_t>(p.num_rows) * static_cast<std::size_t>(p.num_experts);
  with_room<float>(s, &Rooms::partials, num_scores, [&](float* logits, cudaStream_t) {
    scores.y_f32 = logits;
    linear_bf16(s, scores);
    issue(s, [&](cudaStream_t stream) { select_experts(p, logits, stream); });
  });
}

/// With few rows the shared expert's products occupy a part of the GPU only: they run beside those of the routed ones.
void CudaOps::moe(Stream& s, const MoeParams& p) {
  constexpr std::int32_t kMostRowsBeside = 512;
  if (p.num_rows == 0) {
    return;
  }
  with_room<std::byte>(s, &Rooms::experts, moe_scratch_bytes(p), [&](std::byte* scratch, cudaStream_t stream) {
    auto& own = static_cast<CudaStream&>(s);
    if (p.num_rows > kMostRowsBeside) {
      moe_shared(p, scratch, stream);
      moe_routed(p, scratch, stream);
    } else {
      own.beside().wait_for(own);
      moe_shared(p, scratch, own.beside().handle());
      moe_routed(p, scratch, stream);
      own.wait_for(own.beside());
    }
    moe_sum(p, scratch, stream);
  });
}

}  // namespace deepinfer::cuda

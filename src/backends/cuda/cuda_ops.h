// The operations of ops/ops.h on a GPU: sizes scratch memory and launches kernels in stream order.
// Not here: what kernels compute (kernels/).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backends/cuda/cuda_check.h"
#include "backends/cuda/scratch.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::cuda {

/// A CUDA graph.
class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(cudaGraphExec_t graph) : graph_(graph) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }

  [[nodiscard]] cudaGraphExec_t graph() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device) : device_(device) {
    must(cudaSetDevice(device_));
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  void synchronize() override { must(cudaStreamSynchronize(stream_)); }
  void copy(void* destination, const void* source, std::size_t size_bytes) override {
    if (size_bytes > 0) {
      must(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDefault, handle()));
    }
  }

  bool begin_recording() override {
    must(cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal));
    return true;
  }
  std::unique_ptr<Recording> end_recording() override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    must(cudaStreamEndCapture(handle(), &graph));
    must(cudaGraphInstantiate(&executable, graph, 0));
    must(cudaGraphDestroy(graph));
    return std::make_unique<CudaRecording>(executable);
  }
  void replay(Recording& recording) override { must(cudaGraphLaunch(static_cast<CudaRecording&>(recording).graph(), handle())); }

  /// The stream, its device being the current one of this thread from here on.
  [[nodiscard]] cudaStream_t handle() const {
    must(cudaSetDevice(device_));
    return stream_;
  }

 private:
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
};

class CudaOps final : public Ops {
 public:
  /// Products read no other weights than these.
  WeightLayout place_weight(Stream&, const PlaceWeightParams&) override;

  void embed(Stream&, const EmbedParams&) override;
  void mix(Stream&, const MixParams&) override;
  void collapse_norm(Stream&, const CollapseNormParams&) override;
  void expand(Stream&, const ExpandParams&) override;
  void mean_streams(Stream&, const MeanStreamsParams&) override;

  void rms_norm(Stream&, const RmsNormParams&) override;
  void quantise(Stream&, const QuantiseParams&) override;
  void rope_table(Stream&, const RopeTableParams&) override;
  void rotate(Stream&, const RotateParams&) override;
  void linear_q8(Stream&, const LinearQ8Params&) override;
  void linear_bf16(Stream&, const LinearBf16Params&) override;
  void add_rows(Stream&, const AddRowsParams&) override;

  void window_rows(Stream&, const WindowRowsParams&) override;
  void store_ring(Stream&, const StoreRingParams&) override;
  void compress_pairs(Stream&, const CompressPairsParams&) override;
  void store_index_keys(Stream&, const StoreIndexKeysParams&) override;
  void store_compressed(Stream&, const StoreCompressedParams&) override;
  void index_select(Stream&, const IndexSelectParams&) override;
  void attend(Stream&, const AttendParams&) override;

  void route(Stream&, const RouteParams&) override;
  void moe(Stream&, const MoeParams&) override;

  void engram_gather(Stream&, const EngramGatherParams&) override;
  void engram_gate(Stream&, const EngramGateParams&) override;

  void rotate_halves(Stream&, const RotateHalvesParams&) override;
  void attend_all(Stream&, const AttendAllParams&) override;
  void add(Stream&, const AddParams&) override;
  void silu_product(Stream&, const SiluProductParams&) override;
  void gelu(Stream&, const GeluParams&) override;
  void gather_cells(Stream&, const GatherCellsParams&) override;

 private:
  Scratch passing_;      // codes of a weight on their way
  Scratch activations_;  // decoded inputs of linears
  Scratch partials_;     // mixing sums, router logits, index scores, attention scores
  Scratch experts_;      // rows sorted by expert and what flows between the two expert products
};

}  // namespace deepinfer::cuda

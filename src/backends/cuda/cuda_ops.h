// The operations of ops/ops.h on a GPU: sizes scratch memory and launches kernels in stream order.
// Not here: what kernels compute (kernels/).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>

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

/// Memory that operations of a stream use between their kernels.
struct Rooms {
  explicit Rooms(Fault& fault) : passing(fault), activations(fault), partials(fault), experts(fault) {}

  Scratch passing;      // codes of a weight on their way
  Scratch activations;  // decoded inputs of linears
  Scratch partials;     // router logits, index scores, attention scores
  Scratch experts;      // rows sorted by expert and what flows between the two expert products
};

class CudaStream final : public Stream {
 public:
  enum class Kind : std::uint8_t { own, beside };

  CudaStream(int device, Fault& fault, Kind kind = Kind::own)
      : device_(device), fault_(fault), rooms_(fault), beside_(kind == Kind::own ? std::make_unique<CudaStream>(device, fault, Kind::beside) : nullptr) {
    must(cudaSetDevice(device_));
    int least = 0;
    int greatest = 0;
    must(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    must(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, kind == Kind::beside ? greatest : least));
    must(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override {
    cudaEventDestroy(reached_);
    cudaStreamDestroy(stream_);
  }

  void synchronize() override {
    if (!fault_.is_set()) {
      fault_.note(cudaStreamSynchronize(stream_));
    }
  }
  [[nodiscard]] std::string_view fault() const override { return fault_.text(); }
  void copy(void* destination, const void* source, std::size_t size_bytes) override {
    if (size_bytes > 0 && make_current()) {
      fault_.note(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDefault, stream_));
    }
  }
  void wait_for(Stream& other) override {
    const auto& own = static_cast<CudaStream&>(other);
    if (make_current() && fault_.note(cudaEventRecord(own.reached_, own.stream_))) {
      fault_.note(cudaStreamWaitEvent(stream_, own.reached_, 0));
    }
  }

  bool begin_recording() override { return make_current() && fault_.note(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)); }
  std::unique_ptr<Recording> end_recording() override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    if (!fault_.note(cudaStreamEndCapture(stream_, &graph)) || !fault_.note(cudaGraphInstantiate(&executable, graph, 0))) {
      return nullptr;
    }
    fault_.note(cudaGraphDestroy(graph));
    return std::make_unique<CudaRecording>(executable);
  }
  void replay(Recording& recording) override {
    if (make_current()) {
      fault_.note(cudaGraphLaunch(static_cast<CudaRecording&>(recording).graph(), stream_));
    }
  }

  /// The device becomes the current one of this thread. False: it has a fault.
  bool make_current() { return !fault_.is_set() && fault_.note(cudaSetDevice(device_)); }
  [[nodiscard]] cudaStream_t handle() const { return stream_; }
  [[nodiscard]] Rooms& rooms() { return rooms_; }
  /// For work of one operation that may run beside the rest of it: waits for this stream and is waited for within the operation. It goes first
  /// where both have blocks to start, since it is the smaller part.
  [[nodiscard]] CudaStream& beside() { return *beside_; }

 private:
  int device_ = 0;
  Fault& fault_;
  Rooms rooms_;
  std::unique_ptr<CudaStream> beside_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t reached_ = nullptr;  // how far another stream waits for this one
};

class CudaOps final : public Ops {
 public:
  explicit CudaOps(Fault& fault) : fault_(fault) {}

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

  void draw_tokens(Stream&, const DrawTokensParams&) override;

  void rotate_halves(Stream&, const RotateHalvesParams&) override;
  void attend_all(Stream&, const AttendAllParams&) override;
  void add(Stream&, const AddParams&) override;
  void silu_product(Stream&, const SiluProductParams&) override;
  void gelu(Stream&, const GeluParams&) override;
  void gather_cells(Stream&, const GatherCellsParams&) override;

 private:
  /// Calls `work(stream)`, which launches kernels, unless the device has a fault.
  template <class Work>
  void issue(Stream& stream, const Work& work);
  /// The same with scratch memory: `work(memory, stream)`.
  template <class Element, class Work>
  void with_room(Stream& stream, Scratch Rooms::*scratch, std::size_t count, const Work& work);
  /// The same for `kernel` unless there are no rows.
  template <class Params>
  void launch(void (*kernel)(const Params&, cudaStream_t), const Params& p, Stream& stream);

  Fault& fault_;
};

}  // namespace deepinfer::cuda

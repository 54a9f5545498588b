// The vectorised operations: cuts every operation into tasks for the thread pool and calls the kernels of this machine's instruction set.
// How work is cut depends on sizes only and never changes results. One caller at a time. Not here: arithmetic (kernels).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/fast/thread_pool.h"
#include "backends/cpu/token_drawer.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

class FastOps final : public Ops {
 public:
  FastOps(std::int32_t num_threads, ProductUnit unit);

  WeightLayout place_weight(Stream& stream, const PlaceWeightParams& params) override;
  Bf16Weight place_bf16(Stream& stream, const PlaceBf16Params& params) override;

  void embed(Stream& stream, const EmbedParams& params) override;
  void mix(Stream& stream, const MixParams& params) override;
  void collapse_norm(Stream& stream, const CollapseNormParams& params) override;
  void expand(Stream& stream, const ExpandParams& params) override;
  void mean_streams(Stream& stream, const MeanStreamsParams& params) override;

  void rms_norm(Stream& stream, const RmsNormParams& params) override;
  void quantise(Stream& stream, const QuantiseParams& params) override;
  void rope_table(Stream& stream, const RopeTableParams& params) override;
  void rotate(Stream& stream, const RotateParams& params) override;
  void linear_q8(Stream& stream, const LinearQ8Params& params) override;
  void linear_bf16(Stream& stream, const LinearBf16Params& params) override;
  void add_rows(Stream& stream, const AddRowsParams& params) override;

  void window_rows(Stream& stream, const WindowRowsParams& params) override;
  void store_ring(Stream& stream, const StoreRingParams& params) override;
  void compress_pairs(Stream& stream, const CompressPairsParams& params) override;
  void store_index_keys(Stream& stream, const StoreIndexKeysParams& params) override;
  void store_compressed(Stream& stream, const StoreCompressedParams& params) override;
  void index_select(Stream& stream, const IndexSelectParams& params) override;
  void attend(Stream& stream, const AttendParams& params) override;

  void route(Stream& stream, const RouteParams& params) override;
  void moe(Stream& stream, const MoeParams& params) override;

  void engram_gather(Stream& stream, const EngramGatherParams& params) override;
  void engram_gate(Stream& stream, const EngramGateParams& params) override;

  void draw_tokens(Stream& stream, const DrawTokensParams& params) override;

  // fast_vision.cpp
  void rotate_halves(Stream& stream, const RotateHalvesParams& params) override;
  void attend_all(Stream& stream, const AttendAllParams& params) override;
  void add(Stream& stream, const AddParams& params) override;
  void silu_product(Stream& stream, const SiluProductParams& params) override;
  void gelu(Stream& stream, const GeluParams& params) override;
  void gather_cells(Stream& stream, const GatherCellsParams& params) override;

 private:
  /// Rows in tasks of at most `most_rows`, each worth sharing; while every thread has some, `together` rows stay together, for they share work.
  struct RowCost {
    std::int64_t per_row = 1;  ///< in the unit of kTaskCost
    std::int32_t most_rows = kRowBlock;
    std::int32_t together = 1;
  };
  template <class Work>
  void for_rows(std::int32_t num_rows, RowCost cost, const Work& work);
  template <class Work>
  void for_tasks(std::int32_t num_tasks, const Work& work);

  /// work(units) for all units of a weight with n rows.
  template <class Work>
  void for_units(std::int32_t n, const Work& work);

  /// A matrix product cut into blocks of rows and, inside each group of `columns`, pieces of columns.
  struct Product {
    std::int32_t num_rows = 0, groups = 1, columns = 0, depth = 0;
    std::int32_t most_rows = kRowBlock;  ///< of a block
  };
  template <class Work>
  void for_blocks(const Product& product, const Work& work);
  /// Rows that share decoded weights in a product over `depth` values.
  [[nodiscard]] std::int32_t most_rows(std::int64_t depth, std::int64_t num_rows) const;

  void score_one_row(const IndexSelectParams& params, std::int32_t row);
  void moe_rows(const MoeParams& params, Range rows);

  Kernels kernels_;
  ProductUnit unit_;
  ThreadPool pool_;
  std::vector<Scratch> scratch_;      ///< one per worker
  Scratch shared_;                    ///< of the operation that runs: what its tasks share
  std::vector<TokenDrawer> drawers_;  ///< one per worker
};

}  // namespace deepinfer::cpu

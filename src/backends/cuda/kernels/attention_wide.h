// Attention with 64 heads of 512 values, as in the released model, in one kernel (attention_wide.cu; attention_many.cu).
#pragma once

#include <cuda_runtime_api.h>

#include "ops/ops.h"

namespace deepinfer::cuda {

/// Whether attend_wide() has a kernel for this shape. Depends on nothing that differs between steps of a model.
[[nodiscard]] bool is_wide(const AttendParams&);
/// Attention with inverse rotation and Q8 of all rows.
void attend_wide(const AttendParams&, cudaStream_t);
/// The same, for many rows (attention_many.cu). False: not on this GPU.
[[nodiscard]] bool attend_many(const AttendParams&, cudaStream_t);

}  // namespace deepinfer::cuda

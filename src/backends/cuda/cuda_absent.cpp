// Stands in for the CUDA back end where no CUDA compiler was found.
#include "backends/cuda/cuda_device.h"

namespace deepinfer::cuda {

Result<std::unique_ptr<Device>> make_device(const CudaOptions&) {
  return fail(ErrorKind::unsupported, "this build has no CUDA code; install nvcc 13 and configure again");
}

double probe_matrix_flops() { return 0; }

}  // namespace deepinfer::cuda

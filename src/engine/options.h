// How large an engine is. Checked before anything is allocated (load.h, request_check.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer::engine {

struct EngineOptions {
  std::int32_t max_requests = 16;         ///< running at once
  std::int32_t max_batched_tokens = 512;  ///< rows of one step, at least max_requests
  std::int32_t max_model_len = 0;         ///< tokens of the longest context; 0: what the model was made for
  std::int32_t max_queue = 1024;          ///< requests that wait beside those that run
  std::size_t kv_memory_bytes = 0;        ///< for cache blocks; 0: room for max_requests of full length
  std::size_t memory_bytes = 0;           ///< for weights, caches and activations together; 0: no limit
};

}  // namespace deepinfer::engine

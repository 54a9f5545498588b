// How large an engine is. Checked before anything is allocated (load.h, request_check.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace deepinfer::engine {

/// How prompts are computed (docs/spec/model.md 10.2, 10.3).
enum class Replay : std::uint8_t {
  exact,    ///< every row passes every layer; a prefix hit gives the bits of a cold start and needs a kept state
  bounded,  ///< the decoder half sees the last rows only; a prefix hit recomputes one window and needs no state; approximate by design
};

/// Speculative decoding with the model's own drafter (docs/spec/engine.md 8).
enum class SpeculationMode : std::uint8_t {
  off,
  full,        ///< every draft is verified
  confidence,  ///< as many as confidences and measured step times make worth it, none where drafting does not pay
};

/// When a draft is accepted (docs/spec/engine.md 11).
enum class VerificationRule : std::uint8_t {
  coupled,    ///< it equals the token that would be sampled anyway: the same tokens with and without drafts
  rejection,  ///< with probability min(1, target / draft): accepts more, tokens depend on where steps begin
};

/// Where the tables of Engram lie on a device with memory of its own.
enum class EngramMemory : std::uint8_t {
  automatic,  ///< the device's when the whole plan fits there, else the host's
  device,
  host,
};

/// Beyond the window, of the prompt rows that bounded replay keeps: 140 for a window of 128 (docs/spec/engine.md 15).
inline constexpr std::int32_t kDefaultKeepBeyondWindow = 12;

struct EngineOptions {
  std::int32_t max_requests = 16;         ///< running at once
  std::int32_t max_batched_tokens = 512;  ///< rows of one step, at least max_requests
  std::int32_t max_model_len = 0;         ///< tokens of the longest context; 0: what the model was made for
  std::int32_t max_queue = 1024;          ///< requests that wait beside those that run
  Replay replay = Replay::exact;
  std::int32_t replay_keep = 0;                 ///< bounded: prompt rows that pass the decoder half; 0: the window and 12 more
  bool replay_masks = false;                    ///< bounded: other rows pass it too and see no window; the same bits for more work
  bool prefix_cache = true;                     ///< what requests leave in the cache serves later ones with the same beginning
  std::int32_t num_prefix_states = -1;          ///< exact: states kept behind prefixes beside those that free slots hold; -1: half of
                                                ///< the memory of the blocks, at least max_requests
  std::size_t prefix_memory_bytes = 0;          ///< host memory for prefixes whose blocks are needed; 0: none
  std::filesystem::path prefix_directory = {};  ///< where they go from there, and are found by the next process; empty: nowhere
  std::size_t prefix_disk_bytes = std::size_t{1} << 30;  ///< of files in prefix_directory
  std::size_t swap_memory_bytes = 0;  ///< host memory for caches of preempted requests, where that beats computing again; 0: none
  SpeculationMode speculation = SpeculationMode::confidence;
  VerificationRule verification_rule = VerificationRule::coupled;
  std::int32_t max_drafts = -1;  ///< per request and step, at most the trained block; −1: that block, as far as max_batched_tokens has rows
  bool jump_ahead = true;  ///< what a constraint forces is proposed as drafts, where there is speculation
  std::vector<float> confidence_temperatures = {};  ///< above 0; one per draft, or one for all; empty: 1
  bool fit_confidence = false;                      ///< temperatures follow what was accepted lately
  std::int32_t overlap_depth = 0;                   ///< 1: the next step is planned and outputs are delivered while the device computes;
                                                    ///< -1 (load_engine only): where it computes outside the host's memory
  EngramMemory engram_memory = EngramMemory::automatic;
  std::size_t kv_memory_bytes = 0;                  ///< for cache blocks; 0: room for max_requests of full length
  std::size_t memory_bytes = 0;                     ///< for weights, caches and activations together; 0: no limit
};

}  // namespace deepinfer::engine

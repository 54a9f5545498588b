// What a model is made of; private to model.cpp and model_drafts.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/deepseek_v41/binding.h"
#include "model/deepseek_v41/caches.h"
#include "model/deepseek_v41/forward.h"
#include "model/deepseek_v41/model.h"
#include "model/deepseek_v41/recorded_steps.h"
#include "model/deepseek_v41/step_tables.h"
#include "model/deepseek_v41/token_draws.h"
#include "model/deepseek_v41/vision.h"
#include "model/deepseek_v41/workspace.h"

namespace deepinfer::model {

/// Of a draft pass, kept for their capacity.
struct DraftScratch {
  std::vector<Chunk> chunks;
  std::vector<TokenId> blocks;             // [requests, drafts] the anchor, then noise
  std::vector<TokenId> picked;             // [requests] of the current position
  std::vector<std::int32_t> tokens;        // [1 + drafts, requests] the anchors, then the drafts
  std::vector<float> confidence;           // [drafts, requests]
  std::vector<float> markov_confidence;    // [drafts, requests]
  std::vector<float> logits;               // [requests, vocab] where the device's memory is not the host's
};

struct DeepseekV41::State {
  Device& device;
  Config config;
  CacheSizes sizes;
  BoundModel bound;
  EngramHash hash;
  Caches caches;
  Workspace workspace;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Stream> fetches, mixes, beside;  // see ForwardContext
  std::optional<StepTables> tables;  // refers to config and hash above
  std::optional<VisionTower> vision;
  RecordedSteps recorded;
  TokenDraws draws;
  bool has_drawn = false;  // in the launched step
  LayerHook hook;

  ForwardPass pass() {
    return ForwardPass({.ops = device.ops(),
                        .stream = *stream,
                        .fetches = *fetches,
                        .mixes = *mixes,
                        .beside = *beside,
                        .config = config,
                        .weights = bound.weights,
                        .caches = caches,
                        .tables = *tables,
                        .workspace = workspace,
                        .hook = hook});
  }

  DraftScratch drafting;

  Result<void> warm_up();  // model_warm_up.cpp

  // model_drafts.cpp
  void begin_drafts(std::span<const DraftStart> starts, std::int32_t num_drafts);
  float* add_markov(std::int32_t index, std::int32_t num_requests);
  std::span<const float> finish_drafts();
};

}  // namespace deepinfer::model

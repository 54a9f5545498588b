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
#include "model/deepseek_v41/vision.h"
#include "model/deepseek_v41/workspace.h"

namespace deepinfer::model {

/// Of a draft pass, kept for their capacity.
struct DraftScratch {
  std::vector<Chunk> chunks;
  std::vector<TokenId> blocks;             // [requests, drafts] the anchor, then noise
  std::vector<TokenId> drafts;             // [requests] of the current position
  std::vector<std::int32_t> previous;      // [requests] the token before
  std::vector<float> confidence;           // [drafts, requests]
  std::vector<float> markov_confidence;    // [requests]
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
  std::optional<StepTables> tables;  // refers to config and hash above
  std::optional<VisionTower> vision;
  RecordedSteps recorded;
  std::vector<float> host_logits;  // where the device's memory is not the host's
  LayerHook hook;

  ForwardPass pass() {
    return ForwardPass({.ops = device.ops(),
                        .stream = *stream,
                        .config = config,
                        .weights = bound.weights,
                        .caches = caches,
                        .tables = *tables,
                        .workspace = workspace,
                        .hook = hook});
  }

  DraftScratch drafting;
};

}  // namespace deepinfer::model

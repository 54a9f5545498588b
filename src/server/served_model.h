// What answers requests: a loaded model with its names, tokenizer and running engine. Immutable while it is served.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine_thread.h"
#include "grammar/compile_pool.h"
#include "recipe/convert.h"
#include "server/constraint.h"
#include "server/prompt_images.h"
#include "server/served_memory.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::server {

struct ServedModel {
  std::string name;                 ///< the first one that /v1/models lists
  std::string device;               ///< for /version
  std::int32_t context_length = 0;  ///< prompt and reply together
  bool strict_official = false;     ///< only what the official package does: no extras of a body, no turn rendered as it was generated,
                                    ///< nothing of docs/recipe.md
  recipe::ConvertOptions convert;   ///< model_versions holds every accepted name; see conversion_options()
  tokenizer::Tokenizer tokenizer;
  std::int32_t num_encode_threads = 1;  ///< that one long text may be encoded with
  std::shared_ptr<engine::EngineThread> engine;
  std::shared_ptr<grammar::CompilePool> compiler = {};  ///< empty: structured output is refused, or left out when strict_official
  ConstraintSettings constraints = {};                  ///< for the model's tokenizer
  MaybeImages images = image_settings({});              ///< without them requests with images are refused
  ServedMemory memory = {};
};

/// `convert`, as strict as the model is served.
[[nodiscard]] recipe::ConvertOptions conversion_options(const ServedModel& model);

/// Takes images as `vision` says, under the tokenizer's spelling of the model's image token.
void set_images(ServedModel& model, const std::optional<model::VisionConfig>& vision, TokenId image_token);

/// Conversion options that accept `name` and the official V4.1 name for a V4.1 model.
[[nodiscard]] recipe::ConvertOptions convert_options(const std::string& name);

}  // namespace deepinfer::server

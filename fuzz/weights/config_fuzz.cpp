// Fuzz target: any text either is a configuration whose derived values are sound, or an error with a message. No crash, no endless search.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/memory_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using deepinfer::check;
  const auto config = deepinfer::model::parse_config_text({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!config) {
    check(!config.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  for (std::int32_t layer = 0; layer < config->num_hidden_layers; ++layer) {
    if (config->ratio(layer) > 0) {
      check(config->ratio(config->kv_source(layer)) == config->ratio(layer), "a source has the ratio of its layers");
      check(config->kv_source(config->index_source(layer)) == config->kv_source(layer), "a list selects rows of the layer's own source");
    }
  }
  check(config->ratio(config->split_layer()) == 1, "the split layer has ratio 1");
  const auto cache = deepinfer::model::cache_bytes(*config, config->dspark_block_size);
  check(cache.per_block() > 0 && cache.per_slot() > 0, "every model caches something");
  return 0;
}

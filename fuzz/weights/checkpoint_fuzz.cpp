// Fuzz target: a directory with any index and any shard either opens with sound views or fails with a message; it never crashes.
// The first two bytes of the input say how long the index is; 0 means a single file without an index. Rest: the shard "s".
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "weights/checkpoint.h"
#include "weights/value_check.h"

namespace {

using deepinfer::weights::Checkpoint;

/// One directory per process; every run replaces its files.
const std::filesystem::path& directory() {
  static const std::filesystem::path path = [] {
    std::filesystem::path out = std::filesystem::temp_directory_path() / ("deepinfer_fuzz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(out);
    return out;
  }();
  return path;
}

void write(const char* name, std::string_view bytes) {
  std::ofstream file(directory() / name, std::ios::binary | std::ios::trunc);
  file << bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t index_size = std::min<std::size_t>(data[0] | data[1] << 8, input.size());
  std::filesystem::remove(directory() / "model.safetensors.index.json");
  if (index_size > 0) {
    write("model.safetensors.index.json", input.substr(0, index_size));
  }
  write(index_size > 0 ? "s" : "model.safetensors", input.substr(index_size));
  const auto checkpoint = Checkpoint::open(directory());
  if (!checkpoint) {
    deepinfer::check(!checkpoint.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  // Reads every byte of every view: a view outside its file ends in a sanitizer report.
  (void)deepinfer::weights::validate_values(**checkpoint);
  for (const auto& tensor : (*checkpoint)->tensors()) {
    deepinfer::check((*checkpoint)->find(tensor.name) == &tensor.view, "every tensor is found by its name");
  }
  return 0;
}

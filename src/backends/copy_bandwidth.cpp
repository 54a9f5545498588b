#include "backends/copy_bandwidth.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

namespace deepinfer {

double copy_bandwidth(Device& device) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const Buffer from = device.allocate(kBytes);
  const Buffer to = device.allocate(kBytes);
  if (from.data() == nullptr || to.data() == nullptr) {
    return 0;
  }
  const std::unique_ptr<Stream> stream = device.make_stream();
  std::array<double, 9> seconds{};
  for (double& one : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    stream->copy(to.data(), from.data(), kBytes);
    stream->synchronize();
    one = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(seconds);
  return 2.0 * kBytes / seconds[seconds.size() / 2];
}

}  // namespace deepinfer

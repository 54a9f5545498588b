#include "engine/swapped_requests.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

/// Weight of the newest measurement.
constexpr double kNewest = 0.2;

}  // namespace

bool SwappedRequests::is_worth_saving(std::size_t num_blocks, Duration computing) const {
  const std::size_t size = num_bytes(num_blocks);
  if (stats_.num_bytes + size > max_bytes_) {
    return false;
  }
  const double moving = 2 * static_cast<double>(size) * seconds_per_byte_;
  return computing == Duration{} || moving <= std::chrono::duration<double>(computing).count();
}

void SwappedRequests::save(RequestId request, SlotId slot, std::span<const BlockId> blocks, const Clock& clock) {
  const TimePoint begin = clock.now();
  const auto [place, inserted] =
      contents_.try_emplace(request, Contents{.bytes = std::vector<std::byte>(num_bytes(blocks.size())), .num_blocks = blocks.size()});
  check(inserted, "a request is saved once before it goes on");
  const std::span<std::byte> bytes = place->second.bytes;
  (void)calls_.read_state(slot, bytes.first(calls_.state_bytes));  // after a fault of the device nothing goes on
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    (void)calls_.read_block(blocks[i], bytes.subspan(num_bytes(i), calls_.block_bytes));
  }
  measure(clock.now() - begin, bytes.size());
  stats_.num_bytes += bytes.size();
  ++stats_.num_saved;
}

void SwappedRequests::restore(RequestId request, SlotId slot, std::span<const BlockId> blocks, const Clock& clock) {
  const auto found = contents_.find(request);
  check(found != contents_.end() && found->second.num_blocks <= blocks.size(), "what a request goes on from was saved");
  const TimePoint begin = clock.now();
  const std::span<const std::byte> bytes = found->second.bytes;
  calls_.write_state(slot, bytes.first(calls_.state_bytes));
  for (std::size_t i = 0; i < found->second.num_blocks; ++i) {
    calls_.write_block(blocks[i], bytes.subspan(num_bytes(i), calls_.block_bytes));
  }
  measure(clock.now() - begin, bytes.size());
  ++stats_.num_restored;
  forget(request);
}

void SwappedRequests::forget(RequestId request) {
  const auto found = contents_.find(request);
  if (found != contents_.end()) {
    stats_.num_bytes -= found->second.bytes.size();
    contents_.erase(found);
  }
}

void SwappedRequests::measure(Duration time, std::size_t num_bytes) {
  const double newest = std::chrono::duration<double>(time).count() / static_cast<double>(num_bytes);
  seconds_per_byte_ = seconds_per_byte_ == 0 ? newest : (1 - kNewest) * seconds_per_byte_ + kNewest * newest;
}

}  // namespace deepinfer::engine

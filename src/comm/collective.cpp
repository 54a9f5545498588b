#include "comm/collective.h"

#include <algorithm>
#include <barrier>
#include <cstring>

#include "base/check.h"

namespace deepinfer::comm {

namespace {

class Solo final : public Collective {
 public:
  [[nodiscard]] std::int32_t rank() const override { return 0; }
  [[nodiscard]] std::int32_t size() const override { return 1; }
  void barrier() override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check(mine.size() == all.size(), "a world of one gathers its own part");
    std::ranges::copy(mine, all.begin());
  }
  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override { all_gather(send, receive); }
};

/// What the ranks of one process share: where each rank's data lies during an exchange.
struct Shared {
  explicit Shared(std::int32_t size) : meeting(size), sources(static_cast<std::size_t>(size)) {}
  std::barrier<> meeting;
  std::vector<std::span<const std::byte>> sources;  // by rank; valid between two meetings
};

class ThreadRank final : public Collective {
 public:
  ThreadRank(std::shared_ptr<Shared> shared, std::int32_t rank) : shared_(std::move(shared)), rank_(rank) {}

  [[nodiscard]] std::int32_t rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(shared_->sources.size()); }
  void barrier() override { shared_->meeting.arrive_and_wait(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check(all.size() == mine.size() * shared_->sources.size(), "a gather has room for every rank's part");
    publish(mine);
    for (std::size_t source = 0; source < shared_->sources.size(); ++source) {
      std::ranges::copy(shared_->sources[source], all.begin() + static_cast<std::ptrdiff_t>(source * mine.size()));
    }
    barrier();  // nobody reuses its part before everybody has read it
  }

  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override {
    check(send.size() == receive.size() && send.size() % shared_->sources.size() == 0, "an exchange has one equal part per rank");
    const std::size_t part = send.size() / shared_->sources.size();
    publish(send);
    for (std::size_t source = 0; source < shared_->sources.size(); ++source) {
      std::ranges::copy(shared_->sources[source].subspan(static_cast<std::size_t>(rank_) * part, part),
                        receive.begin() + static_cast<std::ptrdiff_t>(source * part));
    }
    barrier();
  }

 private:
  void publish(std::span<const std::byte> mine) {
    shared_->sources[static_cast<std::size_t>(rank_)] = mine;
    barrier();
  }

  std::shared_ptr<Shared> shared_;
  std::int32_t rank_;
};

template <class T>
std::vector<T> gather_values(Collective& collective, T mine) {
  std::vector<T> out(static_cast<std::size_t>(collective.size()));
  collective.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

std::int64_t all_reduce_min(Collective& collective, std::int64_t mine) {
  const std::vector<std::int64_t> values = gather_values(collective, mine);
  return *std::ranges::min_element(values);
}

double all_reduce_sum(Collective& collective, double mine) {
  double sum = 0;
  for (const double value : gather_values(collective, mine)) {
    sum += value;
  }
  return sum;
}

void broadcast(Collective& collective, std::span<std::byte> data) {
  std::vector<std::byte> all(data.size() * static_cast<std::size_t>(collective.size()));
  collective.all_gather(data, all);
  std::ranges::copy(std::span(all).first(data.size()), data.begin());
}

std::unique_ptr<Collective> make_solo() { return std::make_unique<Solo>(); }

std::vector<std::unique_ptr<Collective>> make_thread_world(std::int32_t size) {
  check(size > 0, "a world has at least one rank");
  const auto shared = std::make_shared<Shared>(size);
  std::vector<std::unique_ptr<Collective>> out;
  for (std::int32_t rank = 0; rank < size; ++rank) {
    out.push_back(std::make_unique<ThreadRank>(shared, rank));
  }
  return out;
}

}  // namespace deepinfer::comm

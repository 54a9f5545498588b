#include "comm/collective.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <thread>

namespace deepinfer::comm {
namespace {

void on_every_rank(std::int32_t size, const std::function<void(Collective&)>& work) {
  std::vector<std::unique_ptr<Collective>> world = make_thread_world(size);
  std::vector<std::jthread> threads;
  for (std::unique_ptr<Collective>& rank : world) {
    threads.emplace_back([&work, &rank] { work(*rank); });
  }
}

TEST(Collective, GatherIsInRankOrder) {
  for (const std::int32_t size : {1, 2, 5}) {
    on_every_rank(size, [size](Collective& world) {
      for (int round = 0; round < 200; ++round) {
        const std::int32_t mine = 100 * round + world.rank();
        std::vector<std::int32_t> all(static_cast<std::size_t>(size));
        world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
        for (std::int32_t rank = 0; rank < size; ++rank) {
          ASSERT_EQ(all[static_cast<std::size_t>(rank)], 100 * round + rank);
        }
      }
    });
  }
}

TEST(Collective, ExchangeTransposesParts) {
  constexpr std::int32_t kSize = 4;
  on_every_rank(kSize, [](Collective& world) {
    std::vector<std::int32_t> send;
    for (std::int32_t to = 0; to < kSize; ++to) {
      send.push_back(10 * world.rank() + to);
    }
    std::vector<std::int32_t> received(kSize);
    world.all_to_all(std::as_bytes(std::span(send)), std::as_writable_bytes(std::span(received)));
    for (std::int32_t from = 0; from < kSize; ++from) {
      ASSERT_EQ(received[static_cast<std::size_t>(from)], 10 * from + world.rank());
    }
  });
}

TEST(Collective, SumsAgreeToTheBitOnEveryRank) {
  on_every_rank(3, [](Collective& world) {
    const double values[] = {1e16, 1.0, -1e16};
    ASSERT_EQ(all_reduce_sum(world, values[world.rank()]), (1e16 + 1.0) - 1e16);
    ASSERT_EQ(all_reduce_min(world, 7 - world.rank()), 5);
  });
}

TEST(Collective, RankZeroTellsEverybody) {
  for (const std::int32_t size : {1, 3}) {
    on_every_rank(size, [](Collective& world) {
      for (int round = 0; round < 100; ++round) {
        std::array<std::int32_t, 2> data = {round + world.rank(), -world.rank()};
        broadcast(world, std::as_writable_bytes(std::span(data)));
        ASSERT_EQ(data, (std::array<std::int32_t, 2>{round, 0}));
      }
    });
  }
}

TEST(Collective, WorldOfOneKeepsItsOwn) {
  const std::unique_ptr<Collective> solo = make_solo();
  EXPECT_EQ(solo->size(), 1);
  EXPECT_EQ(all_reduce_sum(*solo, 2.5), 2.5);
  solo->barrier();
}

}  // namespace
}  // namespace deepinfer::comm

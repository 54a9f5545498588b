// How columns of products on a GPU are cut into tiles: on the host, no device needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>

#include "backends/cuda/kernels/gemm.h"

namespace deepinfer::cuda {
namespace {

constexpr int kExperts = 384;

TEST(CudaTiles, PlacesOfExpertsAreNeverLessForMoreColumns) {
  std::int64_t before = 0;
  for (std::int64_t columns = 1; columns < 200 * kExperts; columns += columns < 2 * kExperts ? 1 : 31) {
    const std::int64_t places = tiles_for_experts(true, columns, kExperts).places;
    ASSERT_GE(places, before) << columns << " columns";
    before = places;
  }
}

TEST(CudaTiles, EveryTileOfExpertsHasItsPlace) {
  std::mt19937 random(1);
  std::printf("seed 1\n");
  for (const int rows : {1700, 2048, 4096, 8192, 20000}) {
    for (const int favoured : {kExperts, 100, 7, 1}) {  // experts that all rows choose among
      std::int64_t left = std::int64_t{6} * rows;
      const ColumnTiles tiles = tiles_for_experts(true, left, kExperts);
      if (!tiles.is_wide) {
        continue;
      }
      std::int64_t count = 0;
      std::int64_t places = 0;
      for (int expert = 0; expert < favoured; ++expert) {
        const std::int64_t most = 2 * left / (favoured - expert);
        const auto columns = static_cast<int>(expert + 1 == favoured ? left : static_cast<std::int64_t>(random()) % (most + 1));
        left -= columns;
        const int part = wide_part(columns, tiles.columns);
        for (int done = 0; done < columns; done += part) {
          const int width = wide_columns(std::min(part, columns - done), tiles.columns);
          EXPECT_LE(width, tiles.columns);
          EXPECT_EQ(width % kWideStep, 0);
          ++count;
          places += width;
        }
      }
      EXPECT_LE(count, tiles.count) << rows << " rows, " << favoured << " experts";
      EXPECT_LE(places, tiles.places) << rows << " rows, " << favoured << " experts";
    }
  }
}

}  // namespace
}  // namespace deepinfer::cuda

#include "model/deepseek_v41/engram_hash.h"

#include <gtest/gtest.h>

#include "support/golden_file.h"

namespace deepinfer::model {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens";

/// The numbers of the released model that the hash depends on.
Config released_config() {
  Config config;
  config.engram_layer_ids = {1, 14};
  config.engram_max_ngram_size = 4;
  config.engram_n_heads = 8;
  config.engram_vocab_size = 16000000;
  config.engram_compressed_vocab_size = 99092;
  config.engram_pad_token_id = 2;
  return config;
}

std::vector<std::int32_t> rows_at(const EngramHash& hash, std::size_t layer, std::vector<std::int32_t> classes) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(hash.num_columns()));
  hash.rows(layer, classes, rows);
  return rows;
}

TEST(EngramHash, DrawsTheMultipliersOfTheReleasedModel) {
  const EngramHash hash(released_config(), {0, 1, 2});
  EXPECT_EQ(hash.layer(0).multiplier, (std::vector<std::uint64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hash.layer(1).multiplier, (std::vector<std::uint64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(hash.layer(0).num_rows(), 384006168);
  EXPECT_EQ(hash.layer(1).num_rows(), 384016682);
}

TEST(EngramHash, GivesTheRowsOfTheSpecification) {
  const EngramHash hash(released_config(), {0, 1, 2});
  const std::vector<std::int32_t> start = rows_at(hash, 0, {5});
  EXPECT_EQ(start[0], 5412672);
  EXPECT_EQ(start[1], 18319159);
  EXPECT_EQ(start[2], 35492627);
  EXPECT_EQ(start[23], 372009279);
  const std::vector<std::int32_t> rows = rows_at(hash, 0, {5, 7, 11, 13, 99091});
  EXPECT_EQ((std::vector<std::int32_t>{rows[0], rows[7], rows[8], rows[15], rows[16], rows[23]}),
            (std::vector<std::int32_t>{7727839, 124884832, 131961464, 255952809, 268126546, 369812975}));
  const std::vector<std::int32_t> second = rows_at(hash, 1, {5, 7, 11, 13, 99091});
  EXPECT_EQ((std::vector<std::int32_t>{second[0], second[7], second[8], second[15], second[16], second[23]}),
            (std::vector<std::int32_t>{2255962, 116243970, 134365870, 241115039, 269133228, 374060955}));
}

TEST(EngramHash, AnImageHidesItselfAndEverythingBefore) {
  const EngramHash hash(released_config(), {0, 1, 2});
  const std::vector<std::int32_t> rows = rows_at(hash, 0, {5, EngramHash::kImageClass, 11, 13});
  EXPECT_EQ((std::vector<std::int32_t>{rows[0], rows[8], rows[16]}), (std::vector<std::int32_t>{4449004, 139548245, 256194719}));
}

TEST(EngramHash, ReproducesTheReferenceOnTiny) {
  const json::Value golden = test::read_json(kGoldens / "modules" / "engram.json");
  const Result<Config> config = load_config(std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const EngramHash hash(*config, test::integers(*golden.find("token_map")));
  std::vector<std::int32_t> classes = test::integers(*golden.find("compressed"));
  const char* const keys[] = {"rows_layer1", "rows_layer4"};
  for (std::size_t layer = 0; layer < hash.num_layers(); ++layer) {
    const json::Array& positions = *golden.find(keys[layer])->as_array();
    ASSERT_EQ(positions.size(), classes.size());
    for (std::size_t p = 0; p < positions.size(); ++p) {
      EXPECT_EQ(rows_at(hash, layer, {classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(p) + 1}), test::integers(positions[p]))
          << "layer " << layer << " position " << p;
    }
  }
}

}  // namespace
}  // namespace deepinfer::model

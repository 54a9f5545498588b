#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "weights/temp_directory.h"

namespace deepinfer::weights {
namespace {

/// A safetensors file from the text of its header and its data.
std::string file_of(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out.append(header).append(data);
}

constexpr std::string_view kTwoTensors =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b.c":{"dtype":"I8","shape":[2,3],"data_offsets":[8,14]}} )";
constexpr std::string_view kData = "01234567abcdef";

/// A checkpoint directory with shards and, unless empty, the weight_map of an index.
class CheckpointFiles : public ::testing::Test {
 protected:
  void index(std::string_view weight_map) const {
    directory_.write("model.safetensors.index.json", "{\"weight_map\":" + std::string(weight_map) + "}");
  }
  [[nodiscard]] std::string problem() const {
    const auto checkpoint = Checkpoint::open(directory_.path());
    if (checkpoint) {
      return "none";
    }
    const std::string prefix = "the checkpoint " + directory_.path().string();
    const std::string& message = checkpoint.error().message;
    return message.starts_with(prefix + ": ") ? message.substr(prefix.size() + 2) : message.substr(prefix.size() + 1);
  }
  /// The problem of a single file with this header and data.
  [[nodiscard]] std::string problem_of(std::string_view header, std::string_view data) const {
    directory_.write("model.safetensors", file_of(header, data));
    return problem();
  }

  deepinfer::testing::TempDirectory directory_;
};

TEST_F(CheckpointFiles, ASingleFileNeedsNoIndex) {
  directory_.write("model.safetensors", file_of(kTwoTensors, kData));
  const auto checkpoint = Checkpoint::open(directory_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const TensorView* view = (*checkpoint)->find("b.c");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->dtype, DType::i8);
  EXPECT_EQ(view->shape, (Shape{2, 3}));
  EXPECT_EQ(std::string_view(view->as<char>(), 6), "abcdef");
  EXPECT_EQ((*checkpoint)->find("b"), nullptr);
  EXPECT_EQ((*checkpoint)->payload_bytes(), 14U);
  EXPECT_EQ((*checkpoint)->shards().size(), 1U);
}

TEST_F(CheckpointFiles, TheModelPrefixIsOptional) {
  directory_.write("x", file_of(R"({"model.a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "A"));
  directory_.write("y", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "B"));
  index(R"({"a":"x","model.b":"y"})");
  const auto checkpoint = Checkpoint::open(directory_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(*(*checkpoint)->find("a")->as<char>(), 'A');
  EXPECT_EQ(*(*checkpoint)->find("b")->as<char>(), 'B');
  EXPECT_EQ((*checkpoint)->find("model.a"), nullptr);
}

TEST_F(CheckpointFiles, MisalignedTensorsAreCopiedToAlignedMemory) {
  const std::string data = std::string("x") + std::string("\0\0\x80\x3F", 4);
  directory_.write("model.safetensors", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})", data));
  const auto checkpoint = Checkpoint::open(directory_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const TensorView* view = (*checkpoint)->find("a");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->data) % 4, 0U);
  EXPECT_EQ(*view->as<float>(), 1.0F);
}

TEST_F(CheckpointFiles, ScalarsAndEmptyTensorsAreAllowed) {
  EXPECT_EQ(
      problem_of(
          R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[2,2]},"__metadata__":{"format":"pt"}})",
          "1234"),
      "none");
}

TEST_F(CheckpointFiles, UnlistedTensorsAreAWarning) {
  directory_.write("x", file_of(kTwoTensors, kData));
  index(R"({"a":"x"})");
  const auto checkpoint = Checkpoint::open(directory_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->find("b.c"), nullptr);
  ASSERT_EQ((*checkpoint)->warnings().size(), 1U);
  EXPECT_EQ((*checkpoint)->warnings()[0], "the index does not list every tensor of the shards; ignored: 1");
}

TEST_F(CheckpointFiles, ADirectoryWithoutFilesIsNamed) {
  EXPECT_EQ(problem(),
            "model.safetensors.index.json: the file does not exist: a checkpoint directory has it, or a single model.safetensors");
  const auto nowhere = Checkpoint::open(directory_.path() / "nowhere");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().kind, ErrorKind::not_found);
}

TEST_F(CheckpointFiles, AnIndexMustBeJsonWithAWeightMap) {
  directory_.write("model.safetensors.index.json", "{");
  EXPECT_EQ(problem(), "model.safetensors.index.json: \"unexpected end of the text at line 1 column 2\"");
  directory_.write("model.safetensors.index.json", "[]");
  EXPECT_EQ(problem(), "model.safetensors.index.json: has no object weight_map that maps tensor names to shards");
  directory_.write("model.safetensors.index.json", "");
  EXPECT_EQ(problem(), "model.safetensors.index.json: the file is empty: a checkpoint directory has it, or a single model.safetensors");
}

TEST_F(CheckpointFiles, ShardNamesMustNotLeaveTheDirectory) {
  index(R"({"a":"../x","b":7})");
  EXPECT_EQ(problem(),
            "has 2 problems:\n"
            "  model.safetensors.index.json: the shard of \"a\" is \"\\\"../x\\\"\", which is not the name of a file in this directory\n"
            "  model.safetensors.index.json: the shard of \"b\" is \"7\", which is not the name of a file in this directory");
}

TEST_F(CheckpointFiles, EveryShardProblemIsReportedAtOnce) {
  directory_.write("x", "short");
  directory_.write("z", file_of(kTwoTensors, kData.substr(0, 10)));
  std::filesystem::create_directory(directory_.path() / "d");
  index(R"({"a":"x","q":"missing","r":"d","b.c":"z"})");
  EXPECT_EQ(problem(),
            "has 5 problems:\n"
            "  d: not a regular file\n"
            "  missing: the file does not exist, fetch it again\n"
            "  x: 5 bytes are no safetensors file, fetch it again\n"
            "  z: \"b.c\" ends at byte 14 of the data, but the file holds only 10: the file is truncated, fetch it again\n"
            "  \"a\" is in z, the index says x: fetch the index again");
}

TEST_F(CheckpointFiles, TheListOfProblemsIsCut) {
  std::string map = "{";
  for (int i = 0; i < 30; ++i) {
    map += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"shard" + std::to_string(i) + "\"";
  }
  index(map + "}");
  const std::string text = problem();
  EXPECT_TRUE(text.starts_with("has 30 problems:\n")) << text;
  EXPECT_TRUE(text.ends_with("\n  … and 10 more")) << text;
}

TEST_F(CheckpointFiles, HeadersMustFitIntoTheFileAndTheLimit) {
  const std::string good = file_of(kTwoTensors, kData);
  directory_.write("model.safetensors", good.substr(0, 60));
  EXPECT_EQ(problem(), "model.safetensors: the header needs " + std::to_string(kTwoTensors.size()) +
                           " bytes, but the file has only 60: it is truncated, fetch it again");
  std::string huge = good;
  const std::uint64_t length = 100'000'000;
  std::memcpy(huge.data(), &length, sizeof(length));
  directory_.write("model.safetensors", huge);
  EXPECT_EQ(problem(), "model.safetensors: a header of 100000000 bytes, the limit is 100000000: this is no safetensors file");
  const std::uint64_t wrapping = ~std::uint64_t{0};
  std::memcpy(huge.data(), &wrapping, sizeof(wrapping));
  directory_.write("model.safetensors", huge);
  EXPECT_EQ(problem(), "model.safetensors: a header of 18446744073709551615 bytes, the limit is 100000000: this is no safetensors file");
}

TEST_F(CheckpointFiles, EveryTruncationIsAnError) {
  const std::string good = file_of(kTwoTensors, kData);
  for (std::size_t size = 0; size < good.size(); ++size) {
    directory_.write("model.safetensors", good.substr(0, size));
    EXPECT_FALSE(Checkpoint::open(directory_.path()).has_value()) << size;
  }
}

TEST_F(CheckpointFiles, HeadersMustBeJsonObjects) {
  EXPECT_EQ(problem_of("{\"a\"", ""), "model.safetensors: the header is no JSON object: \"unexpected end of the text at line 1 column 5\"");
  EXPECT_EQ(problem_of("[]", ""), "model.safetensors: the header is no JSON object");
  EXPECT_EQ(problem_of("\xFF", ""), "model.safetensors: the header is no JSON object: \"invalid UTF-8 at byte 0\"");
}

TEST_F(CheckpointFiles, ANameTwiceInOneHeaderIsAnError) {
  EXPECT_EQ(
      problem_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "12"),
      "model.safetensors: the header is no JSON object: \"the key \\\"a\\\" twice in one object at line 1 column 105\"");
}

TEST_F(CheckpointFiles, ANameInTwoShardsIsAnError) {
  directory_.write("x", file_of(kTwoTensors, kData));
  directory_.write(
      "y", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"q":{"dtype":"U8","shape":[1],"data_offsets":[0,0]}})", "1"));
  index(R"({"a":"x","b.c":"x","q":"y"})");
  EXPECT_EQ(problem(),
            "has 2 problems:\n"
            "  y: \"q\" is U8 [1], 1 bytes, but has 0 bytes of data\n"
            "  \"a\" is in x and in y: keep one");
}

TEST_F(CheckpointFiles, ANameWithAndWithoutPrefixIsAnError) {
  EXPECT_EQ(problem_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"model.a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                       "12"),
            "\"a\" is there both with and without \"model.\" (model.safetensors, model.safetensors): keep one");
  std::filesystem::remove(directory_.path() / "model.safetensors");
  directory_.write("x", file_of(kTwoTensors, kData));
  index(R"({"a":"x","b.c":"x","model.a":"x"})");
  EXPECT_EQ(problem(), "model.safetensors.index.json: \"a\" is listed both with and without \"model.\": keep one");
}

TEST_F(CheckpointFiles, TensorsMustBeWhereTheIndexSays) {
  directory_.write("x", file_of(kTwoTensors, kData));
  directory_.write("y", file_of(R"({"q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"));
  index(R"({"a":"y","b.c":"x","q":"y","lost":"y"})");
  EXPECT_EQ(problem(),
            "has 2 problems:\n"
            "  \"a\" is in x, the index says y: fetch the index again\n"
            "  \"lost\" is not in y, where the index says it is: fetch index and shard again");
}

TEST_F(CheckpointFiles, OverlappingTensorsAreAnError) {
  EXPECT_EQ(
      problem_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "1234"),
      "model.safetensors: \"a\" and \"b\" overlap in the file");
  EXPECT_EQ(
      problem_of(
          R"({"big":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"c":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})",
          "123456789"),
      "has 2 problems:\n"
      "  model.safetensors: \"big\" and \"b\" overlap in the file\n"
      "  model.safetensors: \"big\" and \"c\" overlap in the file");
}

TEST_F(CheckpointFiles, WrongEntriesAreDescribed) {
  const auto entry = [this](std::string_view fields) { return problem_of("{\"t\":" + std::string(fields) + "}", "12345678"); };
  const std::string t = "model.safetensors: \"t\" ";
  EXPECT_EQ(entry("1"), t + "has no dtype");
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[1],"data_offsets":[0,2]})"),
            t + "has the dtype \"F16\", which is not one of F32, BF16, F8_E4M3, F8_E8M0, I8, U8, I32, I64");
  EXPECT_EQ(entry(R"({"dtype":"U8","data_offsets":[0,2]})"), t + "has no shape");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,2]})"), t + "has the impossible shape [-1]");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[1.5],"data_offsets":[0,2]})"), t + "has the impossible shape [1.5]");
  EXPECT_EQ(entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
            t + "has the impossible shape [4294967296,4294967296]");
  EXPECT_EQ(entry(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
            t + "has the impossible shape [18446744073709551615]");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[0,1]})"), t + "has more than four axes: [1,1,1,1,1]");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[1]})"), t + "has no data_offsets of the form [begin, end]");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[1],"data_offsets":[2,1]})"), t + "has no data_offsets of the form [begin, end]");
  EXPECT_EQ(entry(R"({"dtype":"BF16","shape":[3],"data_offsets":[0,5]})"), t + "is BF16 [3], 6 bytes, but has 5 bytes of data");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[2],"data_offsets":[18446744073709551614,18446744073709551616]})"),
            t + "has no data_offsets of the form [begin, end]");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[2],"data_offsets":[18446744073709551613,18446744073709551615]})"),
            t + "ends at byte 18446744073709551615 of the data, but the file holds only 8: the file is truncated, fetch it again");
}

}  // namespace
}  // namespace deepinfer::weights

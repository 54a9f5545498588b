#include "model/deepseek_v41/config.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "model/config_fixtures.h"

namespace deepinfer::model {
namespace {

using testing::nano_json;
using testing::parsed;
using testing::real_config;
using testing::real_json;
using testing::tiny_json;
using testing::with;

/// The message for the real configuration with one value changed; "accepted"
/// when there is none.
std::string verdict(std::string_view path, std::string_view value) {
  const Result<Config> config = parse_config(with(real_json(), path, value), "config.json");
  return config ? "accepted" : config.error().message;
}

TEST(Config, ReadsTheNumbersOfTheRealModel) {
  const Config c = real_config();
  EXPECT_EQ(c.vocab_size, 129280);
  EXPECT_EQ(c.image_token_id, 129264);
  EXPECT_EQ(c.hidden_size, 5120);
  EXPECT_EQ(c.rms_norm_eps, 1e-20F);
  EXPECT_EQ(c.compress_rope_theta, 160000);
  ASSERT_TRUE(c.rope_scaling.has_value());
  EXPECT_EQ(c.rope_scaling->original_max_position_embeddings, 65536);
  EXPECT_EQ(c.candidate_source_layer_id, 20);
  EXPECT_TRUE(c.use_fp4_sparse_kv);
  EXPECT_EQ(c.engram_num_embeddings, (std::vector<std::int64_t>{384006168, 384016682}));
  EXPECT_EQ(c.dspark_target_layer_ids, (std::vector<std::int32_t>{37, 38, 39}));
  ASSERT_TRUE(c.vision.has_value());
  EXPECT_EQ(c.vision->patch_values(), 588);
  EXPECT_FALSE(c.vision->max_wh_ratio.has_value());
}

TEST(Config, LayersHaveTheRolesOfTheTable) {
  const Config c = real_config();
  EXPECT_EQ(c.split_layer(), 20);
  EXPECT_TRUE(c.allows_bounded_replay());
  for (std::int32_t layer = 2; layer < 40; ++layer) {
    const std::int32_t kv = layer < 8 ? 2 : layer < 14 ? 8 : layer < 20 ? 14 : 20;
    const std::int32_t index = layer < 24 ? kv : layer / 4 * 4;
    EXPECT_EQ(c.ratio(layer), layer < 20 ? 2 : 1) << layer;
    EXPECT_EQ(c.kv_source(layer), kv) << layer;
    EXPECT_EQ(c.index_source(layer), index) << layer;
    EXPECT_EQ(c.is_kv_source(layer), layer == kv) << layer;
    EXPECT_EQ(c.is_index_source(layer), layer == index) << layer;
    EXPECT_EQ(c.is_candidate_source(layer), layer == 20) << layer;
    EXPECT_EQ(c.uses_candidates(layer), layer == index && layer >= 24) << layer;
  }
  EXPECT_EQ(c.ratio(0), 0);
  EXPECT_EQ(c.ratio(42), 0);
  EXPECT_EQ(c.engram_place(14), 1);
  EXPECT_EQ(c.engram_place(2), std::nullopt);
  EXPECT_EQ(c.tap_place(38), 1);
  EXPECT_EQ(c.num_experts(39), 384);
  EXPECT_EQ(c.num_experts(40), 128);
  EXPECT_EQ(c.experts_per_token(42), 3);
}

TEST(Config, AcceptsTheBundledModels) {
  const Config nano = parsed(nano_json());
  EXPECT_EQ(nano.n_routed_experts, 24);
  EXPECT_FALSE(nano.vision.has_value());
  const Config tiny = parsed(tiny_json());
  EXPECT_EQ(tiny.split_layer(), 6);
  EXPECT_EQ(tiny.rope_scaling->factor, 4.0);
  ASSERT_TRUE(tiny.vision.has_value());
  EXPECT_EQ(tiny.vision->head_dim(), 16);
}

TEST(Config, EngramTablesHaveThePrimeSizesOfTheSpecification) {
  const std::vector<std::vector<std::int32_t>> primes = engram_primes(real_config());
  ASSERT_EQ(primes.size(), 2U);
  ASSERT_EQ(primes[0].size(), 24U);
  EXPECT_EQ(primes[0].front(), 16000057);
  EXPECT_EQ(primes[0][8], 16000189);
  EXPECT_EQ(primes[0].back(), 16000463);
  EXPECT_EQ(primes[1].front(), 16000477);
  EXPECT_EQ(primes[1].back(), 16000889);
  EXPECT_EQ(std::accumulate(primes[1].begin(), primes[1].end(), std::int64_t{0}), 384016682);
}

struct Refusal {
  const char* path;
  const char* value;  // empty: the key is removed
  const char* message;
};

class ConfigRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(ConfigRefusal, NamesKeyAndValue) {
  const Refusal& refusal = GetParam();
  EXPECT_EQ(verdict(refusal.path, refusal.value), std::string("config.json: ") + refusal.message);
}

INSTANTIATE_TEST_SUITE_P(
    TopLevel, ConfigRefusal,
    ::testing::Values(Refusal{"architectures", R"(["DeepseekV4ForCausalLM"])",
                              R"(architectures is ["DeepseekV4ForCausalLM"]: must be ["DeepseekV41ForCausalLM"])"},
                      Refusal{"architectures", R"(["DeepseekV41ForCausalLM","Other"])",
                              R"(architectures is ["DeepseekV41ForCausalLM","Other"]: must be ["DeepseekV41ForCausalLM"])"},
                      Refusal{"model_type", "\"deepseek_v3\"", R"(model_type is "deepseek_v3": must be "deepseek_v41")"},
                      Refusal{"dtype", "", R"(dtype is missing: must be "bfloat16")"},
                      Refusal{"image_token_id", "0", "image_token_id is 0: must be an integer in 1 … 129279"},
                      Refusal{"eos_token_id", "129280", "eos_token_id is 129280: must be an integer in 0 … 129279"},
                      Refusal{"tie_word_embeddings", "true", "tie_word_embeddings is true: must be false"},
                      Refusal{"quantization_config.weight_block_size", "[128,128]",
                              "quantization_config.weight_block_size is [128,128]: must be "
                              "[32,32]"},
                      Refusal{"quantization_config.expert_dtype", "\"fp8\"", R"(quantization_config.expert_dtype is "fp8": must be "fp4")"},
                      Refusal{"quantization_config.scale_fmt", "", R"(quantization_config.scale_fmt is missing: must be "ue8m0")"},
                      Refusal{"quantization_config.activation_scheme", "\"static\"",
                              R"(quantization_config.activation_scheme is "static": must be "dynamic")"},
                      Refusal{"quantization_config.quant_method", "\"awq\"",
                              R"(quantization_config.quant_method is "awq": must be "fp8")"}));

INSTANTIATE_TEST_SUITE_P(
    Sizes, ConfigRefusal,
    ::testing::Values(Refusal{"text_config.hidden_size", "5100", "text_config.hidden_size is 5100: must be a multiple of 32"},
                      Refusal{"text_config.hidden_size", "",
                              "text_config.hidden_size is missing: must be an integer in 1 … "
                              "1048576"},
                      Refusal{"text_config.hidden_size", "5120.0",
                              "text_config.hidden_size is 5120.0: must be an integer in 1 … "
                              "1048576"},
                      Refusal{"text_config.num_attention_heads", "60",
                              "text_config.num_attention_heads is 60: must be a multiple of "
                              "o_groups"},
                      Refusal{"text_config.num_key_value_heads", "2", "text_config.num_key_value_heads is 2: must be 1"},
                      Refusal{"text_config.head_dim", "500", "text_config.head_dim is 500: must be a multiple of 32"},
                      Refusal{"text_config.qk_rope_head_dim", "63", "text_config.qk_rope_head_dim is 63: must be even"},
                      Refusal{"text_config.qk_rope_head_dim", "256",
                              "text_config.qk_rope_head_dim is 256: must not exceed "
                              "index_head_dim"},
                      Refusal{"text_config.q_lora_rank", "1281", "text_config.q_lora_rank is 1281: must be a multiple of 32"},
                      Refusal{"text_config.o_lora_rank", "1022",
                              "text_config.o_lora_rank is 1022: times o_groups must be a "
                              "multiple of 32"},
                      Refusal{"text_config.moe_intermediate_size", "2300",
                              "text_config.moe_intermediate_size is 2300: must be a multiple "
                              "of 32"},
                      Refusal{"text_config.hidden_act", "\"gelu\"", R"(text_config.hidden_act is "gelu": must be "silu")"},
                      Refusal{"text_config.swiglu_limit", "-1", "text_config.swiglu_limit is -1: must be a number in 0.0 … 1e+06"},
                      Refusal{"text_config.attention_bias", "true", "text_config.attention_bias is true: must be false"},
                      Refusal{"text_config.attention_dropout", "0.1", "text_config.attention_dropout is 0.1: must be 0.0"},
                      Refusal{"text_config.sliding_window", "0",
                              "text_config.sliding_window is 0: must be an integer in 1 … "
                              "1048576"},
                      Refusal{"text_config.rope_scaling",
                              "{\"type\":\"linear\",\"factor\":16,\"beta_fast\":32,\"beta_slow\":"
                              "1,\"original_max_position_embeddings\":65536}",
                              R"(text_config.rope_scaling.type is "linear": must be "yarn")"}));

INSTANTIATE_TEST_SUITE_P(Roles, ConfigRefusal,
                         ::testing::Values(Refusal{"text_config.kv_source_layer_ids", "[2,14,8,20]",
                                                   "text_config.kv_source_layer_ids is [2,14,8,20]: must be "
                                                   "increasing"},
                                           Refusal{"text_config.kv_source_layer_ids", "[2,8,15,20]",
                                                   "text_config.kv_source_layer_ids is [2,8,15,20]: layer 15 must "
                                                   "also be in index_source_layer_ids"},
                                           Refusal{"text_config.kv_source_layer_ids", "[2,8,14,40]",
                                                   "text_config.kv_source_layer_ids is [2,8,14,40]: must be a "
                                                   "list of integers in 0 … 39"},
                                           Refusal{"text_config.index_k_source_layer_ids", "[2,8,14]",
                                                   "text_config.index_k_source_layer_ids is [2,8,14]: must equal "
                                                   "kv_source_layer_ids: index keys come from the source's "
                                                   "compressed rows"},
                                           Refusal{"text_config.index_source_layer_ids", "[1,2,8,14,20]",
                                                   "text_config.index_source_layer_ids is [1,2,8,14,20]: layer 1 "
                                                   "comes before every kv source and has no rows to select"},
                                           Refusal{"text_config.candidate_source_layer_id", "21",
                                                   "text_config.candidate_source_layer_id is 21: must be null or "
                                                   "one of index_source_layer_ids"},
                                           Refusal{"text_config.candidate_topk_blocks", "2044",
                                                   "text_config.candidate_topk_blocks is 2044: must be a multiple "
                                                   "of 8"},
                                           Refusal{"text_config.candidate_topk_blocks", "56",
                                                   "text_config.candidate_topk_blocks is 56: times "
                                                   "candidate_block_size must not be below index_topk"},
                                           Refusal{"text_config.candidate_block_size", "17",
                                                   "text_config.candidate_block_size is 17: must be an integer in "
                                                   "1 … 16"},
                                           Refusal{"text_config.dspark_target_layer_ids", "[19,38,39]",
                                                   "text_config.dspark_target_layer_ids is [19,38,39]: must all "
                                                   "be on one side of the split layer 20"}));

INSTANTIATE_TEST_SUITE_P(
    Experts, ConfigRefusal,
    ::testing::Values(
        Refusal{"text_config.n_shared_experts", "2", "text_config.n_shared_experts is 2: must be 1"},
        Refusal{"text_config.num_experts_per_tok", "385",
                "text_config.num_experts_per_tok is 385: must not exceed "
                "n_routed_experts"},
        Refusal{"text_config.scoring_func", "\"sigmoid\"", R"(text_config.scoring_func is "sigmoid": must be "sqrtsoftplus")"},
        Refusal{"text_config.topk_method", "\"greedy\"", R"(text_config.topk_method is "greedy": must be "noaux_tc")"},
        Refusal{"text_config.norm_topk_prob", "false", "text_config.norm_topk_prob is false: must be true"},
        Refusal{"text_config.hc_shifted", "false", "text_config.hc_shifted is false: must be true"},
        Refusal{"text_config.engram_max_ngram_size", "1",
                "text_config.engram_max_ngram_size is 1: must be an integer in "
                "2 … 8"},
        Refusal{"text_config.engram_head_dim", "100", "text_config.engram_head_dim is 100: must be a multiple of 32"},
        Refusal{"text_config.engram_num_embeddings", "[384006168,384016683]",
                "text_config.engram_num_embeddings is [384006168,384016683]: must "
                "be [384006168,384016682], the table rows that follow from "
                "engram_vocab_size, engram_n_heads and engram_max_ngram_size"},
        Refusal{"text_config.dspark_markov_rank", "0",
                "text_config.dspark_markov_rank is 0: must be an integer in 1 "
                "… 1048576"},
        Refusal{"text_config.dspark_target_attn_input", "false", "text_config.dspark_target_attn_input is false: must be true"},
        Refusal{"vision_config.max_wh_ratio", "0.5",
                "vision_config.max_wh_ratio is 0.5: must be a number in 1.0 … "
                "1e+09"},
        Refusal{"vision_config.num_attention_heads", "15",
                "vision_config.hidden_size is 1024: must be a multiple of 4 · "
                "num_attention_heads: rows and columns rotate half of a head "
                "each"}));

TEST(Config, RatiosAreCheckedAgainstSources) {
  json::Value root = real_json();
  root.as_object()->find("text_config")->as_object()->find("compress_ratios")->as_array()->at(5) = 1;
  const Result<Config> config = parse_config(root, "config.json");
  ASSERT_FALSE(config.has_value());
  EXPECT_NE(config.error().message.find("layer 5 must have the ratio of its source 2, above 0"), std::string::npos)
      << config.error().message;
}

TEST(Config, TheSplitLayerMustBeASource) {
  EXPECT_NE(verdict("text_config.kv_source_layer_ids", "[2,8,14]").find("layer 20 must have the ratio of its source 14, above 0"),
            std::string::npos);
}

TEST(Config, RatiosCoverEveryLayerAndDrafterBlock) {
  EXPECT_NE(verdict("text_config.num_nextn_predict_layers", "2").find("must have one entry for each of the 40 + 2 layers"),
            std::string::npos);
  EXPECT_NE(verdict("text_config.compress_ratios", "[0,0,3]").find("must be a list of integers in 0 … 2"), std::string::npos);
}

TEST(Config, EveryProblemIsReportedAtOnce) {
  const json::Value root =
      with(with(with(real_json(), "model_type", "\"x\""), "text_config.hidden_size", "100"), "text_config.n_shared_experts", "3");
  const Result<Config> config = parse_config(root, "config.json");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(config.error().message,
            "config.json has 3 problems:\n"
            "  model_type is \"x\": must be \"deepseek_v41\"\n"
            "  text_config.hidden_size is 100: must be a multiple of 32\n"
            "  text_config.n_shared_experts is 3: must be 1");
}

TEST(Config, OptionalPartsMayBeAbsent) {
  EXPECT_FALSE(parsed(with(real_json(), "vision_config", "null")).vision.has_value());
  EXPECT_FALSE(parsed(with(real_json(), "text_config.rope_scaling", "null")).rope_scaling.has_value());
  EXPECT_FALSE(parsed(with(real_json(), "text_config.candidate_source_layer_id", "null")).uses_candidates(24));
  EXPECT_EQ(parsed(with(real_json(), "text_config.n_routed_experts", "381")).n_routed_experts, 381);  // no group of 4 is needed
  EXPECT_FALSE(parsed(with(real_json(), "text_config.use_fp4_sparse_kv", "false")).use_fp4_sparse_kv);
  json::Value no_drafter = with(real_json(), "text_config.num_nextn_predict_layers", "");
  no_drafter.as_object()->find("text_config")->as_object()->find("compress_ratios")->as_array()->resize(40);
  EXPECT_FALSE(parsed(with(no_drafter, "text_config.dspark_block_size", "")).has_drafter());
  EXPECT_TRUE(parsed(with(real_json(), "text_config.engram_layer_ids", "[]")).engram_num_embeddings.empty());
  EXPECT_FALSE(parsed(with(with(real_json(), "text_config.engram_layer_ids", "[1,25]"), "bos_token_id", "5")).allows_bounded_replay());
}

TEST(Config, AForeignConfigurationIsAnErrorNotACrash) {
  for (const char* text : {"", "[]", "null", "{}", "{\"text_config\":3}", "{\"text_config\":{\"compress_ratios\":[1,1,1]}}",
                           "{\"text_config\":{\"vocab_size\":1e999}}", "{\"a\":1,\"a\":2}"}) {
    EXPECT_FALSE(parse_config_text(text, "config.json").has_value()) << text;
  }
}

TEST(Config, AMissingFileIsNamed) {
  const Result<Config> config = load_config("/nonexistent");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().kind, ErrorKind::not_found);
  EXPECT_NE(config.error().message.find("/nonexistent/config.json"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::model

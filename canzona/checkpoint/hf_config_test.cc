#include "canzona/checkpoint/hf_folder.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "canzona/base/error.h"
#include "canzona/shapes/read_model.h"

namespace canzona::checkpoint::hf_config_test {
namespace {

HfNumbers tiny() {
  return {.architecture = {.layers = 3,
                           .hidden = 64,
                           .ffn = 128,
                           .vocab = 256,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 16,
                           .tied = true,
                           .qk_norm = true},
          .length = 128};
}

HfNumbers with_experts() {
  HfNumbers numbers = tiny();
  numbers.architecture.experts = {.count = 4, .ffn = 32, .first_layer = 1};
  return numbers;
}

HfNumbers llama() {
  HfNumbers numbers = tiny();
  numbers.architecture.qk_norm = false;
  return numbers;
}

// The reader of foreign configurations finds the same tensors.
TEST(HfConfig, GivesTheSameModel) {
  for (const HfNumbers& numbers : {tiny(), with_experts(), llama()}) {
    const Model written = generate_model(numbers.architecture, "m", false);
    const Model read = model_from_config(hf_config(numbers), "m", {});
    EXPECT_EQ(read.tensors, written.tensors);
  }
}

// transformers refuses an integer where it expects a float.
TEST(HfConfig, WritesFloatsAsSuch) {
  HfNumbers numbers = with_experts();
  numbers.norm_epsilon = 1;
  numbers.balance_coefficient = 0;
  const auto config = nlohmann::json::parse(hf_config(numbers));
  for (const char* key : {"rms_norm_eps", "rope_theta", "attention_dropout",
                          "router_aux_loss_coef", "initializer_range"})
    EXPECT_TRUE(config[key].is_number_float()) << key;
}

TEST(HfConfig, NamesTheClass) {
  const auto dense = nlohmann::json::parse(hf_config(tiny()));
  EXPECT_EQ(dense["architectures"][0], "Qwen3ForCausalLM");
  EXPECT_EQ(dense["model_type"], "qwen3");
  EXPECT_EQ(dense["rms_norm_eps"], 1e-6);
  EXPECT_EQ(dense["rope_theta"], 10000.0);
  EXPECT_EQ(dense["max_position_embeddings"], 128);
  EXPECT_EQ(dense["torch_dtype"], "float32");
  EXPECT_FALSE(dense.contains("num_experts"));
  const auto experts = nlohmann::json::parse(hf_config(with_experts()));
  EXPECT_EQ(experts["architectures"][0], "Qwen3MoeForCausalLM");
  EXPECT_EQ(experts["num_experts_per_tok"], 2);
  EXPECT_EQ(experts["mlp_only_layers"], nlohmann::json::array({0}));
}

TEST(HfConfig, IsLlamasWithoutNormsOfQueriesAndKeys) {
  const auto config = nlohmann::json::parse(hf_config(llama()));
  EXPECT_EQ(config["architectures"][0], "LlamaForCausalLM");
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["mlp_bias"], false);
  EXPECT_FALSE(config.contains("use_sliding_window"));
}

TEST(HfConfig, RefusesWhatNobodyHas) {
  HfNumbers numbers = with_experts();
  numbers.architecture.qk_norm = false;
  EXPECT_THROW(hf_config(numbers), UsageError);
  numbers = tiny();
  numbers.architecture.latent.kv_rank = 8;
  EXPECT_THROW(hf_config(numbers), UsageError);
  numbers = with_experts();
  numbers.architecture.experts.shared = 1;
  EXPECT_THROW(hf_config(numbers), UsageError);
}

}  // namespace
}  // namespace canzona::checkpoint::hf_config_test

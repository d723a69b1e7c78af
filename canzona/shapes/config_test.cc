#include "canzona/shapes/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "canzona/shapes/read_model.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::shapes_config_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const json kQwen32b = json::parse(R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "attention_bias": false, "attention_dropout": 0.0, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 25600,
  "num_attention_heads": 64, "num_hidden_layers": 64,
  "num_key_value_heads": 8, "rope_scaling": null, "rope_theta": 1000000,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "vocab_size": 151936})");

const json kQwen30b = json::parse(R"({
  "model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1,
  "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
  "mlp_only_layers": [], "moe_intermediate_size": 768,
  "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 48, "num_key_value_heads": 4,
  "tie_word_embeddings": false, "vocab_size": 151936})");

const json kLlama8b = json::parse(R"({
  "model_type": "llama", "attention_bias": false, "hidden_size": 4096,
  "intermediate_size": 14336, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8,
  "tie_word_embeddings": false, "vocab_size": 128256})");

const json kDeepseek = json::parse(R"({
  "model_type": "deepseek_v3", "attention_bias": false,
  "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432,
  "kv_lora_rank": 512, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
  "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 61,
  "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"quant_method": "fp8", "weight_block_size": [128]},
  "tie_word_embeddings": false, "v_head_dim": 128, "vocab_size": 129280})");

Model read(const json& config, bool fused = false) {
  return model_from_config(config.dump(), "config.json", {.fused = fused});
}

std::string message(const json& config) {
  return message_of([&] { read(config); });
}

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

json without(json config, const char* key) {
  config.erase(key);
  return config;
}

const Tensor* find(const Model& model, std::string_view name) {
  for (const Tensor& tensor : model.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

int64_t rows(const Model& model, std::string_view name) {
  const Tensor* tensor = find(model, name);
  return tensor == nullptr ? 0 : tensor->rows();
}

TEST(Config, GivesTheTensorsOfThePreset) {
  for (const bool fused : {false, true}) {
    const auto tensors = [&](const char* preset) {
      return read_model(preset, {.fused = fused}).tensors;
    };
    EXPECT_EQ(read(kQwen32b, fused).tensors, tensors("qwen3-32b"));
    EXPECT_EQ(read(kQwen30b, fused).tensors, tensors("qwen3-30b-a3b"));
    EXPECT_EQ(read(kLlama8b, fused).tensors, tensors("llama-3-8b"));
    EXPECT_EQ(read(kDeepseek, fused).tensors, tensors("deepseek-v3"));
  }
}

TEST(Config, KvHeadsThatAreNullOrAbsentAreAsManyAsHeads) {
  const Model null = read(with(kLlama8b, {{"num_key_value_heads", nullptr}}));
  EXPECT_EQ(null.kv_heads, 32);
  EXPECT_EQ(read(without(kLlama8b, "num_key_value_heads")), null);
}

TEST(Config, HeadDimThatIsAbsent) {
  constexpr const char* kQ = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_EQ(rows(read(kLlama8b), kQ), 4096);
  EXPECT_EQ(rows(read(with(kLlama8b, {{"head_dim", 64}})), kQ), 32 * 64);
  EXPECT_EQ(rows(read(without(kQwen32b, "head_dim")), kQ), 64 * 128);
  EXPECT_EQ(rows(read(with(kQwen32b, {{"head_dim", nullptr}})), kQ), 5120);
  EXPECT_EQ(rows(read(without(kQwen30b, "head_dim")), kQ), 2048);
  EXPECT_THAT(message(with(kLlama8b, {{"num_attention_heads", 24}})),
              AllOf(HasSubstr("head_dim"), HasSubstr("24")));
  EXPECT_THAT(message(with(kLlama8b, {{"num_attention_heads", 0}})),
              HasSubstr("head_dim"));
}

TEST(Config, MistralReadsLikeLlamaWithoutBiases) {
  EXPECT_EQ(read(with(kLlama8b,
                      {{"model_type", "mistral"}, {"attention_bias", true}})),
            read(kLlama8b));
}

TEST(Config, BiasesBecomeTensors) {
  const Model model =
      read(with(kLlama8b, {{"attention_bias", true}, {"mlp_bias", true}}));
  for (const char* name : {"self_attn.q_proj", "self_attn.o_proj",
                           "mlp.up_proj", "mlp.down_proj"}) {
    EXPECT_NE(find(model, cat("model.layers.0.", name, ".bias")), nullptr);
  }
  const Model latent = read(with(kDeepseek, {{"attention_bias", true}}));
  EXPECT_NE(find(latent, "model.layers.0.self_attn.q_a_proj.bias"), nullptr);
  EXPECT_EQ(find(latent, "model.layers.0.self_attn.q_b_proj.bias"), nullptr);
}

TEST(Config, TiedEmbeddings) {
  EXPECT_NE(find(read(kQwen32b), "lm_head.weight"), nullptr);
  EXPECT_EQ(find(read(with(kQwen32b, {{"tie_word_embeddings", true}})),
                 "lm_head.weight"),
            nullptr);
}

TEST(Config, SparseStepAndMlpOnlyLayers) {
  const Model model = read(with(
      kQwen30b, {{"decoder_sparse_step", 2}, {"mlp_only_layers", {5, 3}}}));
  const auto is_dense = [&](int layer) {
    return find(model, cat("model.layers.", layer, ".mlp.up_proj.weight")) !=
           nullptr;
  };
  EXPECT_TRUE(is_dense(0));
  EXPECT_FALSE(is_dense(1));
  EXPECT_TRUE(is_dense(2));
  EXPECT_TRUE(is_dense(3));
  EXPECT_TRUE(is_dense(5));
  EXPECT_FALSE(is_dense(7));
  EXPECT_EQ(rows(model, "model.layers.0.mlp.up_proj.weight"), 6144);
  EXPECT_THAT(message(with(kQwen30b, {{"mlp_only_layers", {-1}}})),
              HasSubstr("mlp_only_layers"));
  EXPECT_THAT(message(with(kQwen30b, {{"mlp_only_layers", 3}})),
              HasSubstr("mlp_only_layers"));
}

TEST(Config, AliasesOfTheNumberOfExperts) {
  const json moe = without(kQwen30b, "num_experts");
  EXPECT_EQ(read(with(moe, {{"num_local_experts", 128}})), read(kQwen30b));
  const json latent = without(kDeepseek, "n_routed_experts");
  EXPECT_EQ(read(with(latent, {{"num_local_experts", 256}})), read(kDeepseek));
  EXPECT_THAT(message(with(kQwen30b, {{"num_local_experts", 64}})),
              AllOf(HasSubstr("num_experts is 128"),
                    HasSubstr("num_local_experts is 64")));
  EXPECT_THAT(message(moe), HasSubstr("num_experts|num_local_experts"));
}

TEST(Config, DeepseekWithoutLowRankQAndSharedExperts) {
  const Model model = read(with(
      kDeepseek, {{"q_lora_rank", nullptr}, {"n_shared_experts", nullptr}}));
  EXPECT_EQ(rows(model, "model.layers.0.self_attn.q_proj.weight"), 128 * 192);
  EXPECT_EQ(find(model, "model.layers.0.self_attn.q_a_proj.weight"), nullptr);
  EXPECT_EQ(find(model, "model.layers.0.self_attn.q_a_layernorm.weight"),
            nullptr);
  EXPECT_EQ(find(model, "model.layers.3.mlp.shared_experts.up_proj.weight"),
            nullptr);
  EXPECT_EQ(rows(read(with(kDeepseek, {{"n_shared_experts", 2}})),
                 "model.layers.3.mlp.shared_experts.up_proj.weight"),
            4096);
}

TEST(Config, NestedTextConfig) {
  json text = kQwen32b;
  text.erase("tie_word_embeddings");
  const json nested = {{"model_type", "qwen3_vl"},
                       {"tie_word_embeddings", true},
                       {"vision_config", {{"hidden_size", 7}}},
                       {"text_config", text}};
  EXPECT_EQ(read(nested),
            read(with(kQwen32b, {{"tie_word_embeddings", true}})));
  text.erase("model_type");
  EXPECT_EQ(read({{"model_type", "qwen3"}, {"text_config", text}}),
            read(kQwen32b));
}

TEST(Config, UnknownTypesAreRefusedWithAdvice) {
  EXPECT_THAT(message(with(kQwen32b, {{"model_type", "qwen4"}})),
              AllOf(HasSubstr("'qwen4'"), HasSubstr("deepseek_v3"),
                    HasSubstr("names and shapes"), Not(HasSubstr("missing")),
                    Not(HasSubstr("did you mean"))));
  EXPECT_THAT(message({{"model_type", "gpt2"}, {"vocab_size", 5}}),
              HasSubstr("model_type gpt2 needs the missing keys n_embd, "
                        "n_layer, n_head, n_positions"));
  EXPECT_THAT(message(without(kQwen32b, "model_type")),
              HasSubstr("model_type is missing"));
}

TEST(Config, AllMissingKeysAreNamed) {
  EXPECT_THAT(message(without(without(kDeepseek, "hidden_size"), "v_head_dim")),
              AllOf(HasSubstr("config.json"), HasSubstr("deepseek_v3"),
                    HasSubstr("hidden_size, v_head_dim")));
  EXPECT_THAT(message(without(kDeepseek, "q_lora_rank")),
              HasSubstr("q_lora_rank"));
}

TEST(Config, OddValuesAreRefused) {
  for (const json& odd :
       {json(-1), json(0), json(1.5), json("64"), json(json::array()),
        json(uint64_t{1} << 63), json(1e30)}) {
    for (const char* key : {"num_hidden_layers", "hidden_size", "vocab_size",
                            "num_attention_heads", "intermediate_size"}) {
      EXPECT_NE(message(with(kQwen32b, {{key, odd}})), "nothing was thrown")
          << key << odd;
    }
  }
  EXPECT_THAT(message(with(kQwen32b, {{"attention_bias", 1}})),
              HasSubstr("attention_bias"));
  EXPECT_THAT(message(with(kDeepseek, {{"kv_lora_rank", 0}})),
              HasSubstr("kv_lora_rank"));
}

TEST(Config, ExplodingConfigurationsAreRefused) {
  EXPECT_THAT(message(with(kQwen32b, {{"num_hidden_layers", 1'000'000'000}})),
              HasSubstr("number of layers"));
  EXPECT_THAT(message(with(kQwen30b, {{"num_experts", 1'000'000'000}})),
              HasSubstr("number of experts"));
  EXPECT_THAT(message(with(kQwen30b, {{"num_experts", 100'000}})),
              HasSubstr("2000000 tensors"));
}

TEST(Config, BrokenTextIsRefused) {
  for (const char* text : {"", "{", "[]", "7", "null", "{\"a\": 1} x",
                           R"({"model_type": "llama", "model_type": "qwen3"})",
                           R"({"model_type": 5})", "{\"\xFF\": 1}"}) {
    EXPECT_NE(message_of([&] { model_from_config(text, "config.json", {}); }),
              "nothing was thrown")
        << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_THAT(message_of([&] { model_from_config(deep, "config.json", {}); }),
              HasSubstr("config.json"));
}

TEST(Config, HeadsBesideWeights) {
  FileFacts facts;
  read_heads(kQwen32b.dump(), "config.json", facts);
  EXPECT_EQ(facts.query_heads, 64);
  EXPECT_EQ(facts.kv_heads, 8);
  EXPECT_EQ(facts.qkv_rows, QkvRows::kByGroup);

  facts = {};
  read_heads(R"({"model_type": "phi3", "num_attention_heads": 6})", "c", facts);
  EXPECT_EQ(facts.query_heads, 6);
  EXPECT_EQ(facts.kv_heads, 6);
  EXPECT_EQ(facts.qkv_rows, QkvRows::kBlocks);

  facts = {};
  read_heads(R"({"model_type": "other", "num_attention_heads": 6})", "c",
             facts);
  EXPECT_EQ(facts.qkv_rows, QkvRows::kUnknown);
}

TEST(Config, OddHeadsBesideWeightsAreUnknownHeads) {
  for (const char* text : {"[]", "{}", R"({"num_attention_heads": -3})",
                           R"({"num_attention_heads": "x", "text_config": 1})",
                           R"({"num_attention_heads": 1e30})"}) {
    FileFacts facts;
    read_heads(text, "config.json", facts);
    EXPECT_EQ(facts.query_heads, 0) << text;
    EXPECT_EQ(facts.kv_heads, 0) << text;
  }
  FileFacts facts;
  EXPECT_THROW(read_heads("{", "config.json", facts), UsageError);
}

}  // namespace
}  // namespace canzona::shapes::shapes_config_test

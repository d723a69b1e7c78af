// Families of models by their config.json: tensors as in Hugging Face's
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/architecture.h"
#include "canzona/shapes/test_families.h"

namespace canzona::shapes::families_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
// "name [shape] role cut", without the common prefix of the layer and without
// ".weight"; sections as "name*rows*count".
std::string line_of(const Tensor& t, const std::string& prefix) {
  std::string name = t.name;
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  std::string line = cat(name, " ", shape_text(t.shape), " ", to_string(t.role),
                         " ", to_string(t.cut));
  for (const Section& p : t.sections) {
    line += cat(" ", p.name, "*", p.rows.run, "*", p.rows.count);
  }
  return line;
}

std::vector<std::string> lines(const Model& model, int32_t layer,
                               const std::string& prefix) {
  std::vector<std::string> list;
  for (const Tensor& t : model.tensors) {
    if (t.layer == layer) list.push_back(line_of(t, prefix));
  }
  return list;
}

std::vector<std::string> layer_lines(const Model& model, int32_t layer) {
  return lines(model, layer, cat("model.layers.", layer, "."));
}

TEST(FamilyTensors, Qwen2HasBiasesOfQueriesKeysAndValues) {
  EXPECT_THAT(layer_lines(read(tiny("qwen2")), 0),
              ElementsAre("self_attn.o_proj [8, 12] matrix columns out*8*1",
                          "self_attn.q_proj [12, 8] matrix rows q*12*1",
                          "self_attn.k_proj [6, 8] matrix rows k*6*1",
                          "self_attn.v_proj [6, 8] matrix rows v*6*1",
                          "mlp.gate_proj [12, 8] matrix rows",
                          "mlp.up_proj [12, 8] matrix rows",
                          "mlp.down_proj [8, 12] matrix columns",
                          "input_layernorm [8] norm none",
                          "post_attention_layernorm [8] norm none",
                          "self_attn.q_proj.bias [12] bias rows q*12*1",
                          "self_attn.k_proj.bias [6] bias rows k*6*1",
                          "self_attn.v_proj.bias [6] bias rows v*6*1"));
}

TEST(FamilyTensors, MixtralNamesItsExpertsByNumbers) {
  const json config = tiny("mixtral", {{"num_local_experts", 2}});
  const std::vector<std::string> list = layer_lines(read(config), 0);
  EXPECT_THAT(
      std::vector(list.begin() + 4, list.end()),
      ElementsAre("block_sparse_moe.gate [2, 8] router none",
                  "block_sparse_moe.experts.0.w1 [12, 8] matrix rows",
                  "block_sparse_moe.experts.0.w3 [12, 8] matrix rows",
                  "block_sparse_moe.experts.0.w2 [8, 12] matrix columns",
                  "block_sparse_moe.experts.1.w1 [12, 8] matrix rows",
                  "block_sparse_moe.experts.1.w3 [12, 8] matrix rows",
                  "block_sparse_moe.experts.1.w2 [8, 12] matrix columns",
                  "input_layernorm [8] norm none",
                  "post_attention_layernorm [8] norm none"));
  EXPECT_EQ(layer_lines(read(config, true), 0)[3],
            "block_sparse_moe.experts.0.w13 [24, 8] matrix rows gate*12*1 "
            "up*12*1");
}

const json kLatent = {{"q_lora_rank", 5},
                      {"kv_lora_rank", 6},
                      {"qk_nope_head_dim", 3},
                      {"qk_rope_head_dim", 2},
                      {"v_head_dim", 4},
                      {"n_routed_experts", 1},
                      {"n_shared_experts", 2},
                      {"moe_intermediate_size", 7},
                      {"first_k_dense_replace", 1},
                      {"num_hidden_layers", 2}};

TEST(FamilyTensors, KimiAndDeepseekHaveLatentAttentionAndADenseFirstLayer) {
  const Model model = read(tiny("kimi_k2", kLatent));
  EXPECT_EQ(model, read(tiny("deepseek_v2", kLatent)));
  EXPECT_EQ(model, read(tiny("deepseek_v3", kLatent)));
  const std::vector<std::string> attention = {
      "self_attn.o_proj [8, 16] matrix columns out*8*1",
      "self_attn.q_a_proj [5, 8] matrix none",
      "self_attn.q_b_proj [20, 5] matrix rows q*20*1",
      "self_attn.kv_a_proj_with_mqa [8, 8] matrix none",
      "self_attn.kv_b_proj [28, 6] matrix rows k*3*4 v*4*4"};
  const std::vector<std::string> dense = layer_lines(model, 0);
  const std::vector<std::string> sparse = layer_lines(model, 1);
  EXPECT_EQ(std::vector(dense.begin(), dense.begin() + 5), attention);
  EXPECT_EQ(std::vector(sparse.begin(), sparse.begin() + 5), attention);
  EXPECT_EQ(dense[5], "mlp.gate_proj [12, 8] matrix rows");
  EXPECT_THAT(std::vector(sparse.begin() + 5, sparse.end()),
              ElementsAre("mlp.gate [1, 8] router none",
                          "mlp.shared_experts.gate_proj [14, 8] matrix rows",
                          "mlp.shared_experts.up_proj [14, 8] matrix rows",
                          "mlp.shared_experts.down_proj [8, 14] matrix columns",
                          "mlp.experts.0.gate_proj [7, 8] matrix rows",
                          "mlp.experts.0.up_proj [7, 8] matrix rows",
                          "mlp.experts.0.down_proj [8, 7] matrix columns",
                          "input_layernorm [8] norm none",
                          "self_attn.q_a_layernorm [5] norm none",
                          "self_attn.kv_a_layernorm [6] norm none",
                          "post_attention_layernorm [8] norm none"));
}

TEST(FamilyTensors, Glm4MoeHasBiasesWithoutOneOfTheOutput) {
  const json config = tiny("glm4_moe", {{"attention_bias", true},
                                        {"use_qk_norm", true},
                                        {"n_routed_experts", 2},
                                        {"moe_intermediate_size", 5},
                                        {"first_k_dense_replace", 0}});
  const std::vector<std::string> list = layer_lines(read(config), 0);
  EXPECT_EQ(list[4], "mlp.gate [2, 8] router none");
  EXPECT_EQ(list[5], "mlp.shared_experts.gate_proj [5, 8] matrix rows");
  EXPECT_THAT(std::vector(list.begin() + 14, list.end()),
              ElementsAre("input_layernorm [8] norm none",
                          "self_attn.q_norm [3] norm none",
                          "self_attn.k_norm [3] norm none",
                          "post_attention_layernorm [8] norm none",
                          "self_attn.q_proj.bias [12] bias rows q*12*1",
                          "self_attn.k_proj.bias [6] bias rows k*6*1",
                          "self_attn.v_proj.bias [6] bias rows v*6*1"));
}

const json kNext = {{"num_experts", 1},
                    {"moe_intermediate_size", 5},
                    {"shared_expert_intermediate_size", 6},
                    {"linear_num_key_heads", 2},
                    {"linear_num_value_heads", 4},
                    {"linear_key_head_dim", 3},
                    {"linear_value_head_dim", 5},
                    {"linear_conv_kernel_dim", 4},
                    {"num_hidden_layers", 2},
                    {"full_attention_interval", 2}};

TEST(FamilyTensors, Qwen3NextHasLinearAttention) {
  const Model model = read(tiny("qwen3_next", kNext));
  EXPECT_THAT(
      layer_lines(model, 0),
      ElementsAre(
          "linear_attn.out_proj [8, 20] matrix columns out*8*1",
          "linear_attn.in_proj_qkvz [52, 8] matrix rows q*3*2 k*3*2 v*10*2 "
          "z*10*2",
          "linear_attn.in_proj_ba [8, 8] matrix rows b*2*2 a*2*2",
          "linear_attn.conv1d [32, 4] matrix rows q*6*1 k*6*1 v*20*1",
          "mlp.gate [1, 8] router none",
          "mlp.shared_expert_gate [1, 8] router none",
          "mlp.shared_expert.gate_proj [6, 8] matrix rows",
          "mlp.shared_expert.up_proj [6, 8] matrix rows",
          "mlp.shared_expert.down_proj [8, 6] matrix columns",
          "mlp.experts.0.gate_proj [5, 8] matrix rows",
          "mlp.experts.0.up_proj [5, 8] matrix rows",
          "mlp.experts.0.down_proj [8, 5] matrix columns",
          "input_layernorm [8] norm none",
          "post_attention_layernorm [8] norm none",
          "linear_attn.norm [5] norm none", "linear_attn.A_log [4] norm rows",
          "linear_attn.dt_bias [4] bias rows"));
}

TEST(FamilyTensors, Qwen3NextGatesWhatFullAttentionGives) {
  const std::vector<std::string> list =
      layer_lines(read(tiny("qwen3_next", kNext)), 1);
  EXPECT_THAT(std::vector(list.begin(), list.begin() + 4),
              ElementsAre("self_attn.o_proj [8, 12] matrix columns out*8*1",
                          "self_attn.q_proj [24, 8] matrix rows q*3*4 gate*3*4",
                          "self_attn.k_proj [6, 8] matrix rows k*6*1",
                          "self_attn.v_proj [6, 8] matrix rows v*6*1"));
  EXPECT_EQ(list[13], "self_attn.q_norm [3] norm none");
  EXPECT_EQ(layer_lines(read(tiny("qwen3_next", kNext), true), 1)[1],
            "self_attn.qkv_proj [36, 8] matrix rows q*6*2 gate*6*2 k*3*2 "
            "v*3*2");
}

TEST(FamilyTensors, Qwen3NextSaysWhichLayersAreLinear) {
  const json named =
      with(tiny("qwen3_next", kNext),
           {{"layer_types", {"full_attention", "linear_attention"}}});
  EXPECT_THAT(layer_lines(read(named), 0)[1], HasSubstr("self_attn.q_proj"));
  EXPECT_THAT(layer_lines(read(named), 1)[1], HasSubstr("in_proj_qkvz"));
  const auto refused = [&](const json& types) {
    return message(with(named, {{"layer_types", types}}));
  };
  EXPECT_THAT(refused(json::array({"full_attention"})),
              AllOf(HasSubstr("layer_types"), HasSubstr("2 words"),
                    HasSubstr("got 1")));
  EXPECT_THAT(refused({"full_attention", "mamba"}), HasSubstr("layer 1"));
  EXPECT_THAT(refused({"full_attention", 7}), HasSubstr("layer 1"));
  EXPECT_THAT(refused("full_attention"), HasSubstr("layer_types"));
  EXPECT_THAT(message(with(tiny("qwen3_next", kNext),
                           {{"full_attention_interval", 0}})),
              HasSubstr("full_attention_interval"));
  EXPECT_THAT(
      message(with(tiny("qwen3_next", kNext), {{"linear_num_value_heads", 3}})),
      HasSubstr("3 linear value heads cannot be divided among 2"));
}

TEST(FamilyTensors, GptOssStacksTransposedExpertsWithBiases) {
  const json config = tiny("gpt_oss", {{"num_local_experts", 2}});
  EXPECT_THAT(layer_lines(read(config), 0),
              ElementsAre("self_attn.o_proj [8, 12] matrix columns out*8*1",
                          "self_attn.q_proj [12, 8] matrix rows q*12*1",
                          "self_attn.k_proj [6, 8] matrix rows k*6*1",
                          "self_attn.v_proj [6, 8] matrix rows v*6*1",
                          "mlp.router [2, 8] router none",
                          "mlp.router.bias [2] bias none",
                          "mlp.experts.0.gate_up_proj [8, 24] matrix columns",
                          "mlp.experts.0.down_proj [12, 8] matrix rows",
                          "mlp.experts.0.gate_up_proj_bias [24] bias rows",
                          "mlp.experts.0.down_proj_bias [8] bias none",
                          "mlp.experts.1.gate_up_proj [8, 24] matrix columns",
                          "mlp.experts.1.down_proj [12, 8] matrix rows",
                          "mlp.experts.1.gate_up_proj_bias [24] bias rows",
                          "mlp.experts.1.down_proj_bias [8] bias none",
                          "input_layernorm [8] norm none",
                          "self_attn.sinks [4] norm rows",
                          "post_attention_layernorm [8] norm none",
                          "self_attn.o_proj.bias [8] bias none",
                          "self_attn.q_proj.bias [12] bias rows q*12*1",
                          "self_attn.k_proj.bias [6] bias rows k*6*1",
                          "self_attn.v_proj.bias [6] bias rows v*6*1"));
  for (const Tensor& t : read(config).tensors) {
    EXPECT_EQ(t.expert >= 0, t.name.find(".experts.") != std::string::npos);
  }
}

TEST(FamilyTensors, Olmo2HasNormsBehindItsBlocksAndOverAllHeads) {
  const std::vector<std::string> list = layer_lines(read(tiny("olmo2")), 0);
  EXPECT_THAT(std::vector(list.begin() + 7, list.end()),
              ElementsAre("self_attn.q_norm [12] norm none",
                          "self_attn.k_norm [6] norm none",
                          "post_attention_layernorm [8] norm none",
                          "post_feedforward_layernorm [8] norm none"));
}

TEST(FamilyTensors, GemmaHasFourNormsAndNoHead) {
  const Model gemma2 = read(tiny("gemma2"));
  const std::vector<std::string> two = layer_lines(gemma2, 0);
  EXPECT_THAT(std::vector(two.begin() + 7, two.end()),
              ElementsAre("input_layernorm [8] norm none",
                          "post_attention_layernorm [8] norm none",
                          "pre_feedforward_layernorm [8] norm none",
                          "post_feedforward_layernorm [8] norm none"));
  const Model gemma3 = read(tiny("gemma3_text"));
  const std::vector<std::string> three = layer_lines(gemma3, 0);
  EXPECT_EQ(three[8], "self_attn.q_norm [3] norm none");
  EXPECT_EQ(three.size(), two.size() + 2);
  for (const Model& model : {gemma2, gemma3}) {
    EXPECT_THAT(lines(model, -1, "model."),
                ElementsAre("embed_tokens [10, 8] embedding rows",
                            "norm [8] norm none"));
  }
  EXPECT_THAT(lines(read(tiny("gemma2", {{"tie_word_embeddings", false}})), -1,
                    "model."),
              testing::Contains("lm_head [10, 8] head rows"));
}

TEST(FamilyTensors, Gemma3LeavesOutWhatIsUsual) {
  const Model model = read({{"model_type", "gemma3"},
                            {"text_config",
                             {{"hidden_size", 8},
                              {"intermediate_size", 12},
                              {"num_hidden_layers", 1}}}});
  EXPECT_EQ(model.query_heads, 8);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(layer_lines(model, 0)[1],
            "self_attn.q_proj [2048, 8] matrix rows q*2048*1");
  EXPECT_EQ(model.tensors[0].rows(), 262'208);
}

TEST(FamilyTensors, Phi3KeepsQueriesKeysAndValuesOneAfterTheOther) {
  for (const bool fused : {false, true}) {
    const Model model = read(tiny("phi3"), fused);
    EXPECT_TRUE(model.fused);
    EXPECT_THAT(
        layer_lines(model, 0),
        ElementsAre("self_attn.o_proj [8, 12] matrix columns out*8*1",
                    "self_attn.qkv_proj [24, 8] matrix rows q*12*1 k*6*1 v*6*1",
                    "mlp.gate_up_proj [24, 8] matrix rows gate*12*1 up*12*1",
                    "mlp.down_proj [8, 12] matrix columns",
                    "input_layernorm [8] norm none",
                    "post_attention_layernorm [8] norm none"));
    EXPECT_EQ(model.tensors[2].sections[2], (Section{"v", {18, 6, 24, 1}, 2}));
  }
}

TEST(FamilyTensors, Gpt2HasTransposedWeightsPositionsAndBiases) {
  const Model model = read({{"model_type", "gpt2"},
                            {"n_embd", 8},
                            {"n_layer", 1},
                            {"n_head", 2},
                            {"n_positions", 6},
                            {"vocab_size", 10}});
  EXPECT_THAT(
      lines(model, -1, "transformer."),
      ElementsAre("wte [10, 8] embedding rows", "wpe [6, 8] embedding none",
                  "ln_f [8] norm none", "ln_f.bias [8] bias none"));
  EXPECT_THAT(
      lines(model, 0, "transformer.h.0."),
      ElementsAre(
          "attn.c_proj [8, 8] matrix rows", "attn.c_attn [8, 24] matrix none",
          "mlp.c_fc [8, 32] matrix columns", "mlp.c_proj [32, 8] matrix rows",
          "ln_1 [8] norm none", "ln_2 [8] norm none", "ln_1.bias [8] bias none",
          "ln_2.bias [8] bias none", "attn.c_proj.bias [8] bias none",
          "attn.c_attn.bias [24] bias none", "mlp.c_fc.bias [32] bias rows",
          "mlp.c_proj.bias [8] bias none"));
  json config = config_of("gpt2");
  EXPECT_EQ(read(with(config, {{"n_inner", 5}})).tensors[4].cols(), 5);
  EXPECT_THAT(message(with(config, {{"n_head", 7}})),
              HasSubstr("7 n_head do not divide n_embd 768"));
  EXPECT_THAT(message(with(config, {{"add_cross_attention", true}})),
              HasSubstr("add_cross_attention"));
  config["tie_word_embeddings"] = false;
  EXPECT_EQ(read(config).tensors.back().name, "lm_head.weight");
}

TEST(FamilyTensors, WeightsOfPhi3HaveKnownParts) {
  TestFolder folder;
  const json config = tiny("phi3");
  folder.write("config.json", config.dump());
  const std::string file = folder.write(
      "model.safetensors",
      safetensors_file(
          {{"model.layers.0.self_attn.qkv_proj.weight", {24, 8}}}));
  EXPECT_EQ(read_model(file, {}).tensors[0].sections,
            qkv_block_sections(4, 2, 3));
}

}  // namespace
}  // namespace canzona::shapes::families_test

#include "canzona/shapes/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/test_support.h"

namespace canzona::shapes::architecture_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Architecture kTiny{.layers = 2,
                         .hidden = 64,
                         .ffn = 256,
                         .vocab = 1000,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 16};

// "name rows x cols cut", without "model." and ".weight".
std::vector<std::string> lines(const Model& model, int32_t layer) {
  std::vector<std::string> list;
  for (const Tensor& t : model.tensors) {
    if (t.layer != layer) continue;
    std::string name = t.name;
    for (const std::string& word :
         {cat("model.layers.", layer, "."), std::string("model."),
          std::string(".weight")}) {
      if (const size_t at = name.find(word); at != std::string::npos) {
        name.erase(at, word.size());
      }
    }
    list.push_back(cat(name, " ", shape_text(t.shape), " ", to_string(t.cut)));
  }
  return list;
}

TEST(Generate, MakesAModelOfAFewNumbers) {
  const Model model = generate_model(kTiny, "tiny", /*fused=*/true);
  EXPECT_EQ(model.num_layers, 2);
  EXPECT_EQ(model.query_heads, 4);
  EXPECT_THAT(lines(model, -1),
              ElementsAre("embed_tokens [1000, 64] rows", "norm [64] none",
                          "lm_head [1000, 64] rows"));
  EXPECT_THAT(lines(model, 1),
              ElementsAre("self_attn.o_proj [64, 64] columns",
                          "self_attn.qkv_proj [128, 64] rows",
                          "mlp.gate_up_proj [512, 64] rows",
                          "mlp.down_proj [64, 256] columns",
                          "input_layernorm [64] none",
                          "post_attention_layernorm [64] none"));
}

TEST(Generate, SeparateProjections) {
  EXPECT_THAT(
      lines(generate_model(kTiny, "tiny", false), 0),
      ElementsAre(
          "self_attn.o_proj [64, 64] columns", "self_attn.q_proj [64, 64] rows",
          "self_attn.k_proj [32, 64] rows", "self_attn.v_proj [32, 64] rows",
          "mlp.gate_proj [256, 64] rows", "mlp.up_proj [256, 64] rows",
          "mlp.down_proj [64, 256] columns", "input_layernorm [64] none",
          "post_attention_layernorm [64] none"));
}

TEST(Generate, ExpertsFollowRouterAndSharedExperts) {
  Architecture a = kTiny;
  a.experts = {.count = 2, .ffn = 8, .shared = 2, .first_layer = 1};
  const Model model = generate_model(a, "tiny", true);
  EXPECT_EQ(model.num_experts, 2);
  EXPECT_EQ(lines(model, 0)[2], "mlp.gate_up_proj [512, 64] rows");
  EXPECT_THAT(
      lines(model, 1),
      ElementsAre("self_attn.o_proj [64, 64] columns",
                  "self_attn.qkv_proj [128, 64] rows", "mlp.gate [2, 64] none",
                  "mlp.shared_experts.gate_up_proj [32, 64] rows",
                  "mlp.shared_experts.down_proj [64, 16] columns",
                  "mlp.experts.0.gate_up_proj [16, 64] rows",
                  "mlp.experts.0.down_proj [64, 8] columns",
                  "mlp.experts.1.gate_up_proj [16, 64] rows",
                  "mlp.experts.1.down_proj [64, 8] columns",
                  "input_layernorm [64] none",
                  "post_attention_layernorm [64] none"));
  for (const Tensor& t : model.tensors) {
    const bool routed = t.name.find(".experts.") != std::string::npos;
    EXPECT_EQ(t.expert >= 0, routed) << t.name;
    EXPECT_EQ(t.role == Role::kRouter, t.name.ends_with("mlp.gate.weight"));
    EXPECT_EQ(t.matrix_rule, t.role == Role::kMatrix);
  }
}

TEST(Generate, LatentAttention) {
  Architecture a = kTiny;
  a.latent = {
      .q_rank = 24, .kv_rank = 12, .nope_dim = 8, .rope_dim = 4, .v_dim = 6};
  const Model model = generate_model(a, "tiny", true);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_THAT(lines(model, 0),
              ElementsAre("self_attn.o_proj [64, 24] columns",
                          "self_attn.q_a_proj [24, 64] none",
                          "self_attn.q_b_proj [48, 24] rows",
                          "self_attn.kv_a_proj_with_mqa [16, 64] none",
                          "self_attn.kv_b_proj [56, 12] rows",
                          "mlp.gate_up_proj [512, 64] rows",
                          "mlp.down_proj [64, 256] columns",
                          "input_layernorm [64] none",
                          "self_attn.q_a_layernorm [24] none",
                          "self_attn.kv_a_layernorm [12] none",
                          "post_attention_layernorm [64] none"));
  a.latent.q_rank = 0;
  const std::vector<std::string> plain_q = lines(generate_model(a, "t", 0), 0);
  EXPECT_EQ(plain_q[1], "self_attn.q_proj [48, 64] rows");
  EXPECT_EQ(plain_q[2], "self_attn.kv_a_proj_with_mqa [16, 64] none");
}

TEST(Generate, BiasesComeLastAndAreCutWithTheirRows) {
  Architecture a = kTiny;
  a.attention_bias = a.mlp_bias = a.qk_norm = true;
  const std::vector<std::string> fused = lines(generate_model(a, "t", true), 0);
  EXPECT_THAT(
      std::vector(fused.begin() + 4, fused.end()),
      ElementsAre(
          "input_layernorm [64] none", "self_attn.q_norm [16] none",
          "self_attn.k_norm [16] none", "post_attention_layernorm [64] none",
          "self_attn.o_proj.bias [64] none",
          "self_attn.qkv_proj.bias [128] rows",
          "mlp.gate_up_proj.bias [512] rows", "mlp.down_proj.bias [64] none"));
  const std::vector<std::string> apart =
      lines(generate_model(a, "t", false), 0);
  EXPECT_THAT(
      std::vector(apart.begin() + 11, apart.end()),
      ElementsAre(
          "self_attn.o_proj.bias [64] none", "self_attn.q_proj.bias [64] rows",
          "self_attn.k_proj.bias [32] rows", "self_attn.v_proj.bias [32] rows",
          "mlp.gate_proj.bias [256] rows", "mlp.up_proj.bias [256] rows",
          "mlp.down_proj.bias [64] none"));
}

TEST(Generate, PartsOfATensorCoverItsRows) {
  Architecture a = kTiny;
  a.attention_bias = a.mlp_bias = true;
  a.experts = {.count = 2, .ffn = 8, .shared = 1, .first_layer = 1};
  for (const bool fused : {false, true}) {
    for (const Tensor& tensor : generate_model(a, "t", fused).tensors) {
      if (tensor.sections.empty()) continue;
      int64_t rows = 0;
      for (const Section& section : tensor.sections)
        rows += section.rows.rows();
      EXPECT_EQ(rows, tensor.rows()) << tensor.name;
    }
  }
}

TEST(Generate, EveryOtherLayerMayHaveExperts) {
  const ExpertNumbers experts{
      .count = 4, .ffn = 8, .every = 2, .phase = 1, .dense_layers = {3}};
  EXPECT_FALSE(experts.in_layer(0));
  EXPECT_TRUE(experts.in_layer(1));
  EXPECT_FALSE(experts.in_layer(3));
  EXPECT_TRUE(experts.in_layer(5));
}

std::string message(Architecture a) {
  return message_of([&] { generate_model(a, "odd", true); });
}

TEST(Generate, RefusesNumbersOutOfBounds) {
  Architecture a = kTiny;
  a.layers = 1'000'000'000;
  EXPECT_THAT(message(a), AllOf(HasSubstr("'odd'"), HasSubstr("layers"),
                                HasSubstr("10000"), HasSubstr("1000000000")));
  a = kTiny;
  a.experts = {.count = 1'000'000'000, .ffn = 1};
  EXPECT_THAT(message(a), HasSubstr("number of experts"));
  a = kTiny;
  a.hidden = 0;
  EXPECT_THAT(message(a), HasSubstr("hidden"));
  a = kTiny;
  a.kv_heads = 3;
  EXPECT_THAT(message(a), HasSubstr("4 heads cannot be divided into 3"));
  a = kTiny;
  a.kv_heads = 0;
  EXPECT_THAT(message(a), HasSubstr("kv heads"));
  a = kTiny;
  a.experts = {.count = 1, .ffn = 1, .every = 0};
  EXPECT_THAT(message(a), HasSubstr("step"));
}

TEST(Generate, RefusesTooManyTensorsBeforeMakingThem) {
  Architecture a = kTiny;
  a.layers = 10'000;
  a.experts = {.count = 100'000, .ffn = 1};
  EXPECT_THAT(message(a), HasSubstr("more than 2000000 tensors"));
}

TEST(Generate, RefusesTensorsThatDoNotFit) {
  Architecture a = kTiny;
  a.ffn = kMaxDim;
  EXPECT_THAT(message(a), AllOf(HasSubstr("gate_up_proj"), HasSubstr("2^40")));
  a = kTiny;
  a.vocab = a.hidden = kMaxDim;
  EXPECT_THAT(message(a), HasSubstr("embed_tokens"));
  a = kTiny;
  a.experts = {.count = 1, .ffn = kMaxDim, .shared = kMaxExperts};
  EXPECT_THAT(message(a), HasSubstr("shared_experts"));
}

}  // namespace
}  // namespace canzona::shapes::architecture_test

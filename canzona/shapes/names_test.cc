#include "canzona/shapes/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/test_support.h"

namespace canzona::shapes::names_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Names, SayLayerExpertAndProjection) {
  const NameFacts facts = read_name("model.layers.3.mlp.experts.7.w2.weight");
  EXPECT_EQ(facts.layer, 3);
  EXPECT_EQ(facts.expert, 7);
  EXPECT_EQ(facts.projection, Projection::kDown);
  EXPECT_FALSE(facts.bias);
}

struct Case {
  const char* name;
  size_t num_dims;
  Role role;
  Cut cut;
};

TEST(Names, SayRoleAndCut) {
  using enum Role;
  constexpr Cut kNo = Cut::kNone, kRow = Cut::kRows, kCol = Cut::kColumns;
  for (const Case& c : std::vector<Case>{
           {"model.embed_tokens.weight", 2, kEmbedding, kRow},
           {"embedding.word_embeddings.weight", 2, kEmbedding, kRow},
           {"transformer.wte.weight", 2, kEmbedding, kRow},
           {"transformer.wpe.weight", 2, kEmbedding, kNo},
           {"embedding.position_embeddings.weight", 2, kEmbedding, kNo},
           {"model.embed_positions.weight", 2, kEmbedding, kNo},
           {"embedding", 2, kEmbedding, kRow},
           {"lm_head.weight", 2, kHead, kRow},
           {"lm_head.bias", 1, kBias, kRow},
           {"output_layer.weight", 2, kHead, kRow},
           {"embed_out.weight", 2, kHead, kRow},
           {"output.weight", 2, kHead, kRow},
           {"model.layers.0.mlp.gate.weight", 2, kRouter, kNo},
           {"model.layers.0.block_sparse_moe.gate.weight", 2, kRouter, kNo},
           {"decoder.layers.0.mlp.router.weight", 2, kRouter, kNo},
           {"layers.0.mlp.gate_weight", 2, kRouter, kNo},
           {"model.layers.0.mlp.shared_expert_gate.weight", 2, kRouter, kNo},
           {"model.norm.weight", 1, kNorm, kNo},
           {"decoder.final_layernorm.weight", 1, kNorm, kNo},
           {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 1,
            kNorm, kNo},
           {"decoder.layers.0.self_attention.linear_qkv.layer_norm_bias", 1,
            kBias, kNo},
           {"model.layers.0.input_layernorm.bias", 1, kBias, kNo},
           {"h.0.ln_1.weight", 1, kNorm, kNo},
           {"model.layers.0.self_attn.q_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.self_attn.q_proj.bias", 1, kBias, kRow},
           {"model.layers.0.self_attn.k_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.self_attn.v_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.self_attn.qkv_proj.weight", 2, kMatrix, kRow},
           {"decoder.layers.0.self_attention.linear_qkv.weight", 2, kMatrix,
            kRow},
           {"h.0.attention.query_key_value.weight", 2, kMatrix, kRow},
           {"model.layers.0.self_attn.o_proj.weight", 2, kMatrix, kCol},
           {"model.layers.0.self_attn.o_proj.bias", 1, kBias, kNo},
           {"decoder.layers.0.self_attention.linear_proj.weight", 2, kMatrix,
            kCol},
           {"model.layers.0.self_attn.q_a_proj.weight", 2, kMatrix, kNo},
           {"model.layers.0.self_attn.q_b_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.self_attn.kv_b_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.mlp.gate_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.mlp.up_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.mlp.gate_up_proj.weight", 2, kMatrix, kRow},
           {"model.layers.0.mlp.down_proj.weight", 2, kMatrix, kCol},
           {"decoder.layers.0.mlp.linear_fc1.weight", 2, kMatrix, kRow},
           {"decoder.layers.0.mlp.linear_fc2.weight", 2, kMatrix, kCol},
           {"decoder.layers.0.mlp.linear_fc1.bias", 1, kBias, kRow},
           {"decoder.layers.0.mlp.linear_fc2.bias", 1, kBias, kNo},
           {"model.layers.0.block_sparse_moe.experts.0.w1.weight", 2, kMatrix,
            kRow},
           {"model.layers.0.block_sparse_moe.experts.0.w2.weight", 2, kMatrix,
            kCol},
           {"model.layers.0.block_sparse_moe.experts.0.w3.weight", 2, kMatrix,
            kRow},
           {"layers.0.mlp.up", 2, kMatrix, kRow},
           {"layers.0.mlp.gate", 2, kMatrix, kRow},
           {"layers.0.mlp.down", 2, kMatrix, kCol},
           {"layers.0.mlp.experts.3.gate.weight", 2, kMatrix, kRow},
           {"layers.0.attn.o", 2, kMatrix, kCol},
           {"layers.0.attn.q_norm", 2, kNorm, kNo},
           {"layers.0.mystery.weight", 2, kMatrix, kNo},
           {"layers.0.conv.weight", 3, kMatrix, kNo},
           {"up", 2, kMatrix, kRow},
           {"weight", 2, kMatrix, kNo},
           {"bias", 1, kBias, kNo},
           {"", 2, kMatrix, kNo}}) {
    const NameFacts facts = read_name(c.name);
    const Role role = role_of(facts, c.num_dims);
    EXPECT_EQ(to_string(role), to_string(c.role)) << c.name;
    EXPECT_EQ(to_string(cut_of(facts, role, c.num_dims)), to_string(c.cut))
        << c.name;
  }
}

TEST(Names, SayLayers) {
  for (const auto& [name, layer] : std::vector<std::pair<const char*, int>>{
           {"model.layers.12.mlp.up_proj.weight", 12},
           {"transformer.h.3.attn.weight", 3},
           {"visual.blocks.4.attn.proj.weight", 4},
           {"encoder.layer.5.output.dense.weight", 5},
           {"model.layers.x.up", -1},
           {"layers", -1},
           {"layers.", -1},
           {"layers.7", 7},
           {"layers.007.up", 7},
           {"layers.1.layers.2.up", 1},
           {"player.3.up", -1}}) {
    EXPECT_EQ(read_name(name).layer, layer) << name;
  }
}

TEST(Names, SayExperts) {
  for (const auto& [name, expert] : std::vector<std::pair<const char*, int>>{
           {"layers.0.mlp.experts.12.up_proj.weight", 12},
           {"layers.0.mlp.experts.local_experts.3.linear_fc1.weight", 3},
           {"layers.0.mlp.experts.linear_fc1.weight5", 5},
           {"layers.0.mlp.linear_fc1.weight5", -1},
           {"layers.0.mlp.shared_experts.up_proj.weight", -1},
           {"layers.0.mlp.experts.up_proj.weight", -1}}) {
    EXPECT_EQ(read_name(name).expert, expert) << name;
  }
}

TEST(Names, NumbersOutOfBoundsAreRefused) {
  EXPECT_EQ(read_name("layers.9999.up").layer, 9999);
  EXPECT_THAT(message_of([] { read_name("layers.10000.up"); }),
              AllOf(HasSubstr("layers.10000.up"), HasSubstr("layer"),
                    HasSubstr("10000")));
  EXPECT_THAT(message_of([] { read_name("experts.100000.up"); }),
              HasSubstr("expert"));
  EXPECT_THAT(message_of([] { read_name("h.99999999999999999999.up"); }),
              HasSubstr("layer"));
}

TEST(Names, PlaceOfAPackedExpertsNumber) {
  const auto numbered = [](std::string name) {
    const size_t place = expert_number_place(name);
    return place == std::string::npos ? "no" : name.insert(place, ".7");
  };
  EXPECT_EQ(numbered("model.layers.0.mlp.experts.gate_up_proj"),
            "model.layers.0.mlp.experts.7.gate_up_proj");
  EXPECT_EQ(numbered("mlp.experts"), "mlp.experts.7");
  EXPECT_EQ(numbered("mlp.experts.3.up"), "no");
  EXPECT_EQ(numbered("mlp.shared_experts.up"), "no");
  EXPECT_EQ(numbered("mlp.up"), "no");
}

TEST(Names, BuffersAreNoParameters) {
  EXPECT_TRUE(is_buffer("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_TRUE(is_buffer("model.layers.3.mlp.gate.e_score_correction_bias"));
  EXPECT_TRUE(is_buffer("model.layers.0.mlp.up_proj.weight_scale_inv"));
  EXPECT_TRUE(is_buffer("h.0.attn.bias"));
  EXPECT_FALSE(is_buffer("h.0.attn.c_attn.bias"));
  EXPECT_FALSE(is_buffer("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(is_buffer(""));
}

TEST(Names, S6WrappersAreTakenOffWhereverTheyStand) {
  const std::pair<const char*, const char*> table[] = {
      {"module.model.norm.weight", "model.norm.weight"},
      {"module.module.w", "w"},
      {"_orig_mod.lm_head.weight", "lm_head.weight"},
      {"_fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module.mlp.up",
       "model.layers.0.mlp.up"},
      {"module._orig_mod.model.layers.3._checkpoint_wrapped_module."
       "_fsdp_wrapped_module.mlp.up",
       "model.layers.3.mlp.up"},
      // Only whole components, and never the tensor's own.
      {"model.norm.weight", "model.norm.weight"},
      {"mymodule.w", "mymodule.w"},
      {"module2.w", "module2.w"},
      {"a.module", "a.module"},
      {"module", "module"},
      {"module.", "module."},
      {"a..module.b", "a..b"},
      {"", ""}};
  for (const auto& [stored, plain] : table)
    EXPECT_EQ(unwrapped_name(stored), plain) << stored;
}

TEST(Names, S6TwoThatBecomeOneAreRefusedWithBoth) {
  const auto message = [](std::vector<std::string> names) {
    std::vector<std::string*> all;
    for (std::string& name : names) all.push_back(&name);
    return message_of([&] { unwrap_names(all, "some.file"); });
  };
  EXPECT_THAT(
      message({"b", "module.a", "_orig_mod.a"}),
      HasSubstr("some.file: tensors 'module.a' and '_orig_mod.a' are both "
                "'a'"));
  EXPECT_THAT(message({"a", "b", "module.a"}),
              HasSubstr("tensors 'a' and 'module.a' are both 'a'"));
  EXPECT_THAT(message({"module.a", "a"}),
              HasSubstr("tensors 'a' and 'module.a' are both 'a'"));
}

TEST(Names, TellWhatCouldNotBePlaced) {
  const auto matrix = [](const char* name, int32_t layer) {
    Tensor tensor{.name = name, .shape = {8, 8}};
    tensor.layer = layer;
    tensor.role = Role::kMatrix;
    return tensor;
  };
  EXPECT_TRUE(is_unplaced(matrix("layers.0.mixer.mystery.weight", 0)));
  EXPECT_TRUE(is_unplaced(matrix("memory.weight", -1)));
  EXPECT_FALSE(is_unplaced(matrix("layers.0.self_attn.q_a_proj.weight", 0)));
  Tensor cut = matrix("layers.0.mlp.up_proj.weight", 0);
  cut.cut = Cut::kRows;
  EXPECT_FALSE(is_unplaced(cut));
}

}  // namespace
}  // namespace canzona::shapes::names_test

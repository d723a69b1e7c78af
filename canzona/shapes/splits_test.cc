#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "canzona/shapes/architecture.h"
#include "canzona/shapes/read_model.h"
#include "canzona/shapes/tensor.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::splits_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Model tiny(bool fused) {
  return generate_model({.layers = 1,
                         .hidden = 8,
                         .ffn = 6,
                         .vocab = 10,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 3},
                        "tiny", fused);
}

std::vector<std::string> names_of(const Model& model, const Splits& splits) {
  const std::string prefix = "model.layers.0.";
  std::vector<std::string> names;
  for (const Matrix& matrix : split_into_matrices(model, splits)) {
    names.push_back(matrix_name(model, matrix, splits).substr(prefix.size()));
  }
  return names;
}

TEST(Splits, MatricesOfAFusedLayer) {
  const Model model = tiny(true);
  EXPECT_THAT(
      names_of(model, parse_splits("none")),
      ElementsAre("self_attn.o_proj.weight", "self_attn.qkv_proj.weight",
                  "mlp.gate_up_proj.weight", "mlp.down_proj.weight"));
  EXPECT_THAT(
      names_of(model, parse_splits("qkv,gate-up")),
      ElementsAre("self_attn.o_proj.weight", "self_attn.qkv_proj.weight:q",
                  "self_attn.qkv_proj.weight:k", "self_attn.qkv_proj.weight:v",
                  "mlp.gate_up_proj.weight:gate", "mlp.gate_up_proj.weight:up",
                  "mlp.down_proj.weight"));
}

TEST(Splits, HeadSplitsEveryHeadOfQAndKAndV) {
  const Model model = tiny(true);
  EXPECT_THAT(
      names_of(model, parse_splits("head")),
      ElementsAre(
          "self_attn.o_proj.weight", "self_attn.qkv_proj.weight:q.0",
          "self_attn.qkv_proj.weight:q.1", "self_attn.qkv_proj.weight:q.2",
          "self_attn.qkv_proj.weight:q.3", "self_attn.qkv_proj.weight:k.0",
          "self_attn.qkv_proj.weight:k.1", "self_attn.qkv_proj.weight:v.0",
          "self_attn.qkv_proj.weight:v.1", "mlp.gate_up_proj.weight",
          "mlp.down_proj.weight"));
  const std::vector<Matrix> matrices =
      split_into_matrices(model, parse_splits("head"));
  EXPECT_EQ(matrices[3], (Matrix{2, 0, 6, 3, 8}));
}

TEST(Splits, OutputHeadsAreColumns) {
  for (const bool fused : {false, true}) {
    const Model model = tiny(fused);
    const std::string o = "self_attn.o_proj.weight";
    EXPECT_EQ(names_of(model, parse_splits("output-head")),
              names_of(model, parse_splits("none")));
    const Matrix cut = split_into_matrices(model, {.output_head = true})[0];
    EXPECT_EQ(cut, (Matrix{cut.tensor, -1, 0, 8, 12, 4}));
    EXPECT_EQ(split_into_matrices(model, {.head = true})[0].column_heads, 1);
    EXPECT_EQ(split_into_matrices(model, {.qkv = true})[0].column_heads, 1);
  }
  const Model latent = read_model("deepseek-v3", {});
  for (const Matrix& m : split_into_matrices(latent, {.output_head = true}))
    EXPECT_EQ(m.column_heads, m.rows == 7168 && m.cols == 128 * 128 ? 128 : 1);
}

TEST(Splits, SeparateProjectionsSplitByHeadOnly) {
  const Model model = tiny(false);
  const auto whole = names_of(model, parse_splits("none"));
  EXPECT_EQ(names_of(model, parse_splits("qkv,gate-up,expert")), whole);
  EXPECT_EQ(whole.size(), 7u);
  EXPECT_EQ(names_of(model, parse_splits("head")).size(), 4u + 4 + 2 + 2);
  EXPECT_EQ(names_of(model, parse_splits("head"))[1],
            "self_attn.q_proj.weight:q.0");
}

TEST(Splits, ExpertTensorsSplitGateAndUp) {
  const Model model = read_model("qwen3-30b-a3b", {.fused = true});
  EXPECT_EQ(split_into_matrices(model, {}).size(), 12'384u);
  EXPECT_EQ(split_into_matrices(model, {.gate_up = true}).size(), 18'528u);
}

// Each row of each matrix-rule tensor is in exactly one matrix.
TEST(Splits, AlwaysCoverEveryRowOnce) {
  for (const bool fused : {false, true}) {
    const Model model = tiny(fused);
    for (const char* text :
         {"none", "qkv", "head", "gate-up", "expert", "qkv,head", "qkv,gate-up",
          "head,gate-up", "head,output-head",
          "qkv,head,output-head,gate-up,expert"}) {
      std::set<std::pair<int32_t, int64_t>> seen;
      for (const Matrix& m : split_into_matrices(model, parse_splits(text))) {
        const Tensor& tensor = model.tensors[m.tensor];
        EXPECT_EQ(m.cols, tensor.cols());
        for (int64_t i = m.first_row; i < m.first_row + m.rows; ++i) {
          const int64_t row =
              m.section < 0 ? i : tensor.sections[m.section].rows.row(i);
          EXPECT_TRUE(seen.emplace(m.tensor, row).second) << text;
        }
      }
      size_t rows = 0;
      for (const Tensor& tensor : model.tensors) {
        if (tensor.matrix_rule) rows += static_cast<size_t>(tensor.rows());
      }
      EXPECT_EQ(seen.size(), rows) << text;
    }
  }
}

TEST(Splits, TensorsOfAdamwAreNoMatrices) {
  Model model = tiny(true);
  route(model, {{"*", false}});
  EXPECT_TRUE(split_into_matrices(model, {.qkv = true}).empty());
}

TEST(Splits, WordsReadBack) {
  EXPECT_EQ(parse_splits("none"), Splits{});
  EXPECT_EQ(parse_splits("head,gate-up"),
            (Splits{.head = true, .gate_up = true}));
  for (const char* text :
       {"none", "qkv", "head,gate-up", "qkv,head,expert", "head,output-head"}) {
    EXPECT_EQ(to_string(parse_splits(text)), text);
  }
}

TEST(Splits, UnknownWordsAreRefused) {
  EXPECT_THAT(message_of([] { parse_splits("qvk"); }),
              AllOf(HasSubstr("'qvk'"), HasSubstr("did you mean 'qkv'")));
  EXPECT_THAT(message_of([] { parse_splits("qkv,none"); }),
              HasSubstr("'none' cannot be combined"));
  EXPECT_THAT(message_of([] { parse_splits(""); }), HasSubstr("unknown split"));
  EXPECT_THAT(message_of([] { parse_splits("qkv,"); }),
              HasSubstr("unknown split"));
}

std::string split_message(const char* list, const Splits& splits) {
  const Model model = model_from_shapes(list, "list");
  return message_of([&] { split_into_matrices(model, splits); });
}

TEST(Splits, AFusedTensorOfUnknownHeadsIsRefused) {
  const char* fused = R"([{"name": "layers.0.linear_qkv", "shape": [12, 4]}])";
  EXPECT_THAT(split_message(fused, {.qkv = true}),
              AllOf(HasSubstr("'qkv'"), HasSubstr("layers.0.linear_qkv"),
                    HasSubstr("heads are not known")));
  EXPECT_THAT(split_message(fused, {.head = true}), HasSubstr("'head'"));
  EXPECT_EQ(split_message(fused, {.gate_up = true}), "nothing was thrown");
  const char* separate = R"([{"name": "layers.0.q_proj", "shape": [12, 4]}])";
  EXPECT_THAT(split_message(separate, {.head = true}), HasSubstr("q_proj"));
  EXPECT_EQ(split_message(separate, {.qkv = true}), "nothing was thrown");
  EXPECT_THAT(split_message(R"([{"name": "layers.0.o_proj", "shape": [4, 4]}])",
                            {.output_head = true}),
              AllOf(HasSubstr("'output-head'"), HasSubstr("o_proj")));
}

TEST(Splits, ImpossibleHalvesAndHeadsAreRefused) {
  EXPECT_THAT(
      split_message(R"([{"name": "layers.0.gate_up_proj", "shape": [5, 4]}])",
                    {.gate_up = true}),
      AllOf(HasSubstr("'gate-up'"), HasSubstr("layers.0.gate_up_proj")));
  EXPECT_THAT(split_message(R"([{"name": "layers.0.mlp", "shape": [5, 4]}])",
                            {.head = true}),
              HasSubstr("no q, k or v"));
}

// Queries keep the part that is rotated; keys and values are apart.
TEST(Splits, HeadsOfLatentAttentionAreThoseOfItsUpProjections) {
  const Model model = read_model("deepseek-v3", {});
  const Splits by_head{.head = true};
  using Sides = std::pair<int64_t, int64_t>;
  std::map<std::string, Sides> of_layer;
  for (const Matrix& m : split_into_matrices(model, by_head)) {
    const std::string name = matrix_name(model, m, by_head);
    const std::string at = "model.layers.7.self_attn.";
    if (name.starts_with(at))
      of_layer[name.substr(at.size())] = {m.rows, m.cols};
  }
  EXPECT_EQ(of_layer.size(), 3U + 3 * 128);
  EXPECT_EQ(of_layer["q_b_proj.weight:q.127"], (Sides{192, 1536}));
  EXPECT_EQ(of_layer["kv_b_proj.weight:k.127"], (Sides{128, 512}));
  EXPECT_EQ(of_layer["kv_b_proj.weight:v.0"], (Sides{128, 512}));
  EXPECT_EQ(of_layer["q_a_proj.weight"], (Sides{1536, 7168}));
  const Tensor& kv = *std::ranges::find(
      model.tensors, "model.layers.7.self_attn.kv_b_proj.weight",
      &Tensor::name);
  EXPECT_EQ(kv.sections[0].rows.row(128), 256);  // key of head 1
  EXPECT_EQ(kv.sections[1].rows.row(0), 128);    // value of head 0
}

TEST(Splits, ColumnsOfGpt2AreNotSplit) {
  Model model = read_model("gpt2", {});
  route(model, {});
  for (const char* split : {"qkv", "head", "qkv,head"}) {
    EXPECT_THAT(
        message_of([&] { split_into_matrices(model, parse_splits(split)); }),
        AllOf(HasSubstr("c_attn"), HasSubstr("columns")));
  }
  EXPECT_EQ(split_into_matrices(model, parse_splits("gate-up")).size(), 48u);
}

}  // namespace
}  // namespace canzona::shapes::splits_test

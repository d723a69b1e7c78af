#include "canzona/shapes/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/tensor.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::records_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Records = std::vector<TensorRecord>;

Model make(const Records& records, FileFacts facts = {}) {
  facts.name = "file";
  return model_from_records(TensorRecords(records.begin(), records.end()),
                            facts);
}

std::string message(const Records& records) {
  return message_of([&] {
    for (const TensorRecord& record : records) check_record(record, "file");
    make(records);
  });
}

std::vector<std::string> names(const Model& model) {
  std::vector<std::string> list;
  for (const Tensor& tensor : model.tensors) list.push_back(tensor.name);
  return list;
}

TEST(Records, BecomeAModel) {
  const Model model = make({{"lm_head.weight", {10, 4}},
                            {"layers.1.mlp.experts.2.up", {6, 4}},
                            {"layers.1.norm", {4}},
                            {"embed", {10, 4}}});
  EXPECT_THAT(names(model), ElementsAre("embed", "layers.1.mlp.experts.2.up",
                                        "layers.1.norm", "lm_head.weight"));
  EXPECT_EQ(model.num_layers, 2);
  EXPECT_EQ(model.num_experts, 3);
  EXPECT_EQ(model.query_heads, 0);
  const Tensor& up = model.tensors[1];
  EXPECT_EQ(up.layer, 1);
  EXPECT_EQ(up.expert, 2);
  EXPECT_EQ(up.cut, Cut::kRows);
  EXPECT_TRUE(up.matrix_rule);
  EXPECT_FALSE(model.tensors[2].matrix_rule);
}

TEST(Records, AreOrderedByNameAlone) {
  const Records records = {{"wte.weight", {10, 4}},
                           {"embed_tokens.weight", {10, 4}},
                           {"layers.0.a", {4, 4}},
                           {"layers.2.a", {4, 4}},
                           {"layers.2.experts.2.up", {4, 4}},
                           {"layers.2.experts.10.up", {4, 4}},
                           {"layers.10.a", {4, 4}},
                           {"final_norm", {4}},
                           {"rest", {4, 4}},
                           {"lm_head.weight", {10, 4}}};
  const Model expected = make(records);
  EXPECT_THAT(names(expected),
              ElementsAre("embed_tokens.weight", "wte.weight", "layers.0.a",
                          "layers.2.a", "layers.2.experts.2.up",
                          "layers.2.experts.10.up", "layers.10.a", "final_norm",
                          "rest", "lm_head.weight"));
  for (unsigned seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(make(shuffled(records, seed)), expected) << seed;
  }
}

TEST(Records, WhatAFileSaysGoesBeforeItsNames) {
  const Model model =
      make({{.name = "layers.0.up",
             .shape = {4, 4},
             .role = Role::kRouter,
             .cut = Cut::kColumns},
            {.name = "layers.0.x", .shape = {4, 4}, .role = Role::kEmbedding}});
  EXPECT_EQ(model.tensors[0].role, Role::kRouter);
  EXPECT_EQ(model.tensors[0].cut, Cut::kColumns);
  EXPECT_FALSE(model.tensors[0].matrix_rule);
  EXPECT_EQ(model.tensors[1].cut, Cut::kRows);
}

TEST(Records, ScalarsHaveOneElement) {
  const Model model = make({{"layers.0.scale", {}}});
  EXPECT_THAT(model.tensors[0].shape, ElementsAre(1));
  EXPECT_FALSE(model.tensors[0].matrix_rule);
}

TEST(Records, MoreThanTwoDimensionsAreFlattenedForAdamw) {
  const Model model = make({{"layers.0.conv.weight", {6, 2, 3, 5}}});
  const Tensor& conv = model.tensors[0];
  EXPECT_THAT(conv.shape, ElementsAre(6, 30));
  EXPECT_EQ(conv.role, Role::kMatrix);
  EXPECT_TRUE(conv.flattened);
  EXPECT_FALSE(conv.matrix_rule);
  EXPECT_EQ(conv.cut, Cut::kNone);
  EXPECT_THAT(message({{"x", {1, kMaxDim, 2}}}), HasSubstr("columns"));
}

TEST(Records, PackedExpertsBecomeTensors) {
  const Model model = make({{"layers.0.mlp.experts.gate_up_proj", {3, 12, 4}},
                            {"layers.0.mlp.experts.down_proj", {3, 4, 6}}});
  EXPECT_THAT(names(model), ElementsAre("layers.0.mlp.experts.0.down_proj",
                                        "layers.0.mlp.experts.0.gate_up_proj",
                                        "layers.0.mlp.experts.1.down_proj",
                                        "layers.0.mlp.experts.1.gate_up_proj",
                                        "layers.0.mlp.experts.2.down_proj",
                                        "layers.0.mlp.experts.2.gate_up_proj"));
  EXPECT_EQ(model.num_experts, 3);
  EXPECT_TRUE(model.fused);
  const Tensor& gate_up = model.tensors[3];
  EXPECT_THAT(gate_up.shape, ElementsAre(12, 4));
  EXPECT_EQ(gate_up.expert, 1);
  EXPECT_EQ(gate_up.layer, 0);
  EXPECT_EQ(gate_up.cut, Cut::kRows);
  EXPECT_EQ(gate_up.sections, gate_up_sections(6));
  EXPECT_TRUE(gate_up.matrix_rule);
  EXPECT_EQ(model.tensors[2].cut, Cut::kColumns);
}

TEST(Records, TransposedPacksAreNeitherCutNorSplit) {
  const Model model = make({{"layers.0.mlp.experts.gate_up_proj", {3, 4, 12}},
                            {"layers.0.mlp.experts.down_proj", {3, 6, 4}}});
  for (const Tensor& tensor : model.tensors) {
    EXPECT_EQ(tensor.cut, Cut::kNone) << tensor.name;
    EXPECT_TRUE(tensor.sections.empty()) << tensor.name;
  }
}

TEST(Records, PackedAndSingleExpertsMayNotMeet) {
  EXPECT_THAT(message({{"experts.up", {2, 4, 4}}, {"experts.1.up", {4, 4}}}),
              AllOf(HasSubstr("'experts.1.up'"), HasSubstr("packed")));
  EXPECT_THAT(message({{"experts.up", {1, 4, 4}}, {"experts.0.up", {4, 4}}}),
              HasSubstr("'experts.0.up'"));
}

TEST(Records, TooManyPackedExpertsAreRefused) {
  EXPECT_THAT(message({{"experts.up", {100'001, 1, 1}}}),
              AllOf(HasSubstr("'experts.up'"), HasSubstr("100000 experts")));
  Records many;
  for (int i = 0; i < 21; ++i) {
    many.push_back({cat("layers.", i, ".experts.up"), {100'000, 1, 1}});
  }
  EXPECT_THAT(message(many), HasSubstr("2000000 tensors"));
}

TEST(Records, GatedFc1HasTwiceTheRows) {
  const auto parts_of_fc1 = [](int64_t rows, int64_t ffn) {
    const Model model = make({{"layers.0.mlp.linear_fc1.weight", {rows, 4}},
                              {"layers.0.mlp.linear_fc1.bias", {rows}},
                              {"layers.0.mlp.linear_fc2.weight", {4, ffn}}});
    EXPECT_EQ(model.tensors[0].sections, model.tensors[1].sections);
    return model.tensors[1].sections;
  };
  EXPECT_EQ(parts_of_fc1(12, 6), gate_up_sections(6));
  EXPECT_TRUE(parts_of_fc1(6, 6).empty());
  EXPECT_TRUE(
      make({{"linear_fc1.weight", {6, 4}}}).tensors[0].sections.empty());
}

TEST(Records, GroupedExpertsOfMegatron) {
  const Model model =
      make({{"layers.0.mlp.experts.linear_fc1.weight1", {8, 3}},
            {"layers.0.mlp.experts.linear_fc2.weight1", {3, 4}}});
  EXPECT_EQ(model.num_experts, 2);
  EXPECT_EQ(model.tensors[0].sections, gate_up_sections(4));
  EXPECT_EQ(model.tensors[0].expert, 1);
}

TEST(Records, KnownHeadsGiveParts) {
  const Records records = {{"layers.0.linear_qkv.weight", {24, 4}},
                           {"layers.0.linear_qkv.bias", {24}},
                           {"layers.0.q_proj.weight", {12, 4}},
                           {"layers.0.k_proj.weight", {6, 4}},
                           {"layers.0.qkv_proj.weight", {24, 4}},
                           {"layers.0.wq.weight", {13, 4}}};
  FileFacts facts{.query_heads = 4, .kv_heads = 2};
  const auto sections = [&](size_t i) {
    return make(records, facts).tensors[i].sections;
  };
  EXPECT_EQ(sections(1), qkv_sections(4, 2, 3));     // linear_qkv.bias
  EXPECT_EQ(sections(2), qkv_sections(4, 2, 3));     // linear_qkv.weight
  EXPECT_EQ(sections(0), head_section("k", 6, 2));   // k_proj
  EXPECT_EQ(sections(3), head_section("q", 12, 4));  // q_proj
  EXPECT_TRUE(sections(4).empty());                  // qkv_proj: which order?
  EXPECT_TRUE(sections(5).empty());                  // 13 rows, 4 heads
  facts.qkv_rows = QkvRows::kByGroup;
  EXPECT_EQ(sections(4), qkv_sections(4, 2, 3));
  facts.kv_heads = 3;
  EXPECT_TRUE(sections(2).empty());
  EXPECT_TRUE(make(records).tensors[2].sections.empty());
}

TEST(Records, OddHalvesHaveNoParts) {
  EXPECT_TRUE(make({{"gate_up_proj", {5, 2}}}).tensors[0].sections.empty());
  EXPECT_EQ(make({{"gate_up_proj", {6, 2}}}).tensors[0].sections,
            gate_up_sections(3));
}

TEST(Records, OddNamesAreRefused) {
  EXPECT_THAT(message({{"", {1}}}), HasSubstr("is empty"));
  EXPECT_THAT(message({{"a\nb", {1}}}), HasSubstr("control characters"));
  EXPECT_THAT(message({{std::string("a\0b", 3), {1}}}),
              HasSubstr("control characters"));
  EXPECT_THAT(message({{std::string(257, 'a'), {1}}}), HasSubstr("too long"));
}

TEST(Records, OddSizesAreRefused) {
  for (const int64_t dim :
       {int64_t{0}, int64_t{-1}, kMaxDim + 1, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(message({{"x", {4, dim}}}),
                AllOf(HasSubstr("'x'"), HasSubstr(std::to_string(dim))))
        << dim;
  }
  EXPECT_THAT(message({{"x", {1, 1, 1, 1, 1, 1, 1, 1, 1}}}),
              HasSubstr("8 dimensions"));
  EXPECT_THAT(message({{"x", {kMaxDim, kMaxDim}}}), HasSubstr("2^63"));
  const int64_t million = 1'048'576;
  EXPECT_EQ(make({{"x", {million, million}}}).tensors[0].elements(), kMaxDim);
}

TEST(Records, RolesAndCutsNeedTheirDimensions) {
  EXPECT_THAT(message({{.name = "x", .shape = {4}, .cut = Cut::kColumns}}),
              HasSubstr("no columns"));
  EXPECT_THAT(message({{.name = "x", .shape = {4}, .role = Role::kMatrix}}),
              HasSubstr("'matrix' needs two dimensions"));
}

TEST(Records, NoneAndTwiceAreRefused) {
  EXPECT_THAT(message({}), HasSubstr("file: no tensors"));
  EXPECT_THAT(message({{"x", {1}}, {"y", {1}}, {"x", {2}}}),
              AllOf(HasSubstr("'x'"), HasSubstr("twice")));
}

}  // namespace
}  // namespace canzona::shapes::records_test

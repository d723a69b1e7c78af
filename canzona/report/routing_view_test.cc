#include "canzona/report/models_view.h"

#include <gtest/gtest.h>

#include "canzona/base/text.h"

namespace canzona::report::routing_view_test {
namespace {

Tensor tensor(const std::string& name, std::vector<int64_t> shape,
              bool matrix_rule) {
  Tensor out;
  out.name = name;
  out.shape = std::move(shape);
  out.role = matrix_rule ? Role::kMatrix : Role::kNorm;
  out.matrix_rule = matrix_rule;
  return out;
}

Model layers(int count) {
  Model model;
  model.name = "m";
  for (int i = 0; i < count; ++i) {
    model.tensors.push_back(tensor(cat("layers.", i, ".norm"), {8}, false));
    model.tensors.push_back(tensor(cat("layers.", i, ".up"), {16, 8}, true));
  }
  return model;
}

std::string routing_text(const std::vector<TensorGroup>& groups) {
  Document out;
  return print_text(add_routing(out, "routing", groups, "muon"), Ink());
}

std::vector<Matrix> matrices_of(const Model& model) {
  return split_into_matrices(model, Splits{});
}

TEST(NamePattern, ReplacesWholeNumbersOnly) {
  EXPECT_EQ(name_pattern("layers.12.mlp.w1"), "layers.*.mlp.w1");
  EXPECT_EQ(name_pattern("h/3/experts/07:q.2"), "h/*/experts/*:q.*");
  EXPECT_EQ(name_pattern("9"), "*");
  EXPECT_EQ(name_pattern(""), "");
  EXPECT_EQ(name_pattern("a..b."), "a..b.");
}

TEST(GroupTensors, SixtyFourLayersAreOneLine) {
  const Model model = layers(64);
  const auto groups = group_tensors(model, matrices_of(model));
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].pattern, "layers.*.up");
  EXPECT_TRUE(groups[0].matrix_rule);
  EXPECT_EQ(groups[0].num_tensors, 64);
  EXPECT_EQ(groups[0].num_matrices, 64);
  EXPECT_EQ(groups[0].elements, 64 * 128);
  EXPECT_FALSE(groups[1].matrix_rule);
}

TEST(GroupTensors, KeepsUnlikeShapesApart) {
  Model model = layers(2);
  model.tensors[3].shape = {16, 4};
  EXPECT_EQ(group_tensors(model, matrices_of(model)).size(), 3U);
}

TEST(RoutingText, CountsBothSides) {
  const Model model = layers(4);
  const std::string text =
      routing_text(group_tensors(model, matrices_of(model)));
  EXPECT_NE(text.find("muon: 4 matrices, 512 elements (94.1 %)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("adamw: 4 tensors, 32 elements"), std::string::npos);
}

TEST(RoutingText, ForeignNamesCannotReachTheTerminal) {
  Model model;
  model.tensors.push_back(tensor("a\x1b[2Jb", {2, 2}, true));
  const std::string text =
      routing_text(group_tensors(model, matrices_of(model)));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(RoutingText, ManyPatternsAreCutShort) {
  Model model;
  for (int i = 0; i < 500; ++i)
    model.tensors.push_back(tensor(cat("t", i), {2, 2}, true));
  const std::string text =
      routing_text(group_tensors(model, matrices_of(model)));
  EXPECT_LE(split_text(text, '\n').size(), 70U);
  EXPECT_NE(text.find("440 more"), std::string::npos) << text;
}

TEST(RoutingText, AnEmptyModelIsNoDivision) {
  EXPECT_NE(routing_text({}).find("(0.0 %)"), std::string::npos);
}

}  // namespace
}  // namespace canzona::report::routing_view_test

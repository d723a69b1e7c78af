#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/read_model.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::routing_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Model example() {
  return model_from_shapes(
      R"([{"name": "embed", "shape": [9, 4]},
          {"name": "layers.0.k_proj.weight", "shape": [4, 4]},
          {"name": "layers.0.norm.weight", "shape": [4]},
          {"name": "layers.0.conv.weight", "shape": [4, 2, 3]},
          {"name": "lm_head.weight", "shape": [9, 4]}])",
      "example");
}

std::vector<std::string> matrix_names(const Model& model) {
  std::vector<std::string> names;
  for (const Tensor& tensor : model.tensors) {
    if (tensor.matrix_rule) names.push_back(tensor.name);
  }
  return names;
}

TEST(Route, SendsMatricesToTheRuleAndTheRestToAdamw) {
  Model model = example();
  EXPECT_THAT(matrix_names(model), ElementsAre("layers.0.k_proj.weight"));
  route(model, {{"*.k_proj.weight", false}});
  EXPECT_THAT(matrix_names(model), ElementsAre());
}

TEST(Route, OverridesApplyInOrderOnTopOfTheDefault) {
  Model model = example();
  route(model, {{"*_proj.weight", false}, {"*.k_proj.weight", true}});
  EXPECT_THAT(matrix_names(model), ElementsAre("layers.0.k_proj.weight"));
  route(model, {{"embed", true}, {"lm_head*", true}});
  EXPECT_THAT(matrix_names(model),
              ElementsAre("embed", "layers.0.k_proj.weight", "lm_head.weight"));
  route(model, {});
  EXPECT_EQ(model, example());
}

TEST(Route, FlattenedTensorsMayBeSentToTheRule) {
  Model model = example();
  route(model, {{"*.conv.weight", true}});
  EXPECT_THAT(matrix_names(model),
              ElementsAre("layers.0.conv.weight", "layers.0.k_proj.weight"));
}

TEST(Route, APatternThatMatchesNothingIsRefused) {
  Model model = example();
  EXPECT_THAT(message_of([&] {
                route(model, {{"*.kproj.*", false}});
              }),
              AllOf(HasSubstr("'*.kproj.*'"), HasSubstr("'example'")));
}

TEST(Route, ATensorOfOneDimensionHasNoMatrixRule) {
  Model model = example();
  EXPECT_THAT(
      message_of([&] {
        route(model, {{"layers.0.*", true}});
      }),
      AllOf(HasSubstr("layers.0.norm.weight"), HasSubstr("one dimension")));
}

}  // namespace
}  // namespace canzona::shapes::routing_test

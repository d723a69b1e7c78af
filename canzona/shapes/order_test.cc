#include "canzona/shapes/names.h"

#include <gtest/gtest.h>

#include "canzona/base/text.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::order_test {
namespace {

std::vector<Tensor> tensors_of(const std::vector<std::string>& names) {
  std::vector<Tensor> tensors;
  for (const std::string& name : names) tensors.push_back({.name = name});
  return tensors;
}

TEST(Order, PutsEmbeddingFirstAndHeadLast) {
  std::vector<Tensor> tensors = {{.name = "head", .role = Role::kHead},
                                 {.name = "norm", .role = Role::kNorm},
                                 {.name = "a.10.up", .layer = 10},
                                 {.name = "a.9.up", .layer = 9},
                                 {.name = "embed", .role = Role::kEmbedding}};
  sort_tensors(tensors);
  EXPECT_EQ(tensors[0].name, "embed");
  EXPECT_EQ(tensors[1].name, "a.9.up");
  EXPECT_EQ(tensors[2].name, "a.10.up");
  EXPECT_EQ(tensors[3].name, "norm");
  EXPECT_EQ(tensors[4].name, "head");
}

TEST(Order, OfNoneAndOne) {
  std::vector<Tensor> none;
  sort_tensors(none);
  EXPECT_TRUE(none.empty());
  std::vector<Tensor> one = tensors_of({"x"});
  sort_tensors(one);
  EXPECT_EQ(one[0].name, "x");
}

// natural_less is the oracle; short alphabets make long common prefixes.
TEST(Order, IsThatOfNaturalLess) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> names;
    for (int i = 0; i < 60; ++i) {
      std::string name = "experts.10";
      while (random() % 12 != 0) name += "a.019"[random() % 5];
      names.push_back(name);
    }
    std::vector<Tensor> tensors = tensors_of(names);
    sort_tensors(tensors);
    std::sort(names.begin(), names.end(), natural_less);
    EXPECT_EQ(tensors, tensors_of(names)) << round;
  }
}

}  // namespace
}  // namespace canzona::shapes::order_test

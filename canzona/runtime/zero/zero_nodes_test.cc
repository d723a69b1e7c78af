// Modules that travel in two levels (plan/schedule/rank_group.h) have the
// results of direct ones.
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::zero_nodes_test {
namespace {

ZeroVariant once_per_node(ZeroVariant v, int32_t ranks_per_node) {
  v.reach = Reach::kPerNode;
  v.ranks_per_node = ranks_per_node;
  return v;
}

TEST(ZeroNodes, GiveTheResultOfDirectOnes) {
  for (const ZeroSizes& sizes : std::vector<ZeroSizes>{
           {8, 8, 8}, {8, 8, 1}, {8, 1, 8}, {8, 2, 8}, {8, 4, 4}, {4, 4, 4}})
    for (const MessageUnit message :
         {MessageUnit::kModule, MessageUnit::kParameter}) {
      const ZeroVariant v{
          .sizes = sizes, .message = message, .micro_batches = 2};
      const std::string direct = zero_digest(toy_moe(), 8, v);
      ASSERT_FALSE(direct.empty());
      for (const int32_t ranks_per_node : {2, 4})
        EXPECT_EQ(zero_digest(toy_moe(), 8, once_per_node(v, ranks_per_node)),
                  direct)
            << to_string(sizes) << ", nodes of " << ranks_per_node;
    }
}

// Nodes of three add in another order.
TEST(ZeroNodes, OfThreeShowInSumsThatAreNotExact) {
  ZeroVariant v{.sizes = {6, 6, 6}};
  EXPECT_NE(zero_digest(toy_model(), 6, once_per_node(v, 3)),
            zero_digest(toy_model(), 6, v));
  EXPECT_EQ(zero_digest(toy_model(), 6, once_per_node(v, 2)),
            zero_digest(toy_model(), 6, v));
  v.gradients = GradientKind::kExact;
  EXPECT_EQ(zero_digest(toy_model(), 6, once_per_node(v, 3)),
            zero_digest(toy_model(), 6, v));
}

TEST(ZeroNodes, AreRefusedWhereAGroupHasUnevenNodes) {
  EXPECT_THROW(
      zero_plan(toy_model(), 6, once_per_node({.sizes = {6, 6, 6}}, 4)),
      UsageError);
  zero_plan(toy_model(), 6, once_per_node({.sizes = {6, 1, 1}}, 4));
}

}  // namespace
}  // namespace canzona::zero_nodes_test

#include "canzona/rules/blocks.h"

#include <gmock/gmock.h>

#include <map>
#include <vector>

namespace canzona::rules::factor_layout_test {
namespace {

using Shape = std::vector<int64_t>;

// Every factor has its own place, and all places are used, in block order.
TEST(FactorLayout, PlacesEveryFactorOnce) {
  for (const Shape& dims : {Shape{5, 3}, Shape{4, 4}, Shape{5}, Shape{1, 5},
                            Shape{3, 4, 5}, Shape{2, 2, 2, 3}}) {
    const Blocking cut(AxisSizes(dims), 2);
    const FactorLayout factors(
        cut, {.axes = ~0U, .states_per_kind = 3, .first_state = 2});
    std::map<int, std::vector<FactorPlace>> places;  // by state
    int64_t counted = 0;
    for (int64_t b = 0; b < cut.num_blocks(); ++b) {
      const TensorBlock block = cut.block(b);
      for (int axis = 0; axis < cut.order(); ++axis) {
        const FactorPlace at = factors.place(block, axis);
        EXPECT_EQ(at.side, block.sizes[axis]);
        EXPECT_EQ(at.failures, counted++);
        places[at.first_state].push_back(at);
      }
    }
    EXPECT_EQ(factors.num_counters(), counted);
    int next = 2;
    for (const auto& [state, found] : places) {
      EXPECT_EQ(state, next);
      next += 3;
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].place, static_cast<int64_t>(i));
        EXPECT_EQ(found[i].stack, std::ssize(found));
        EXPECT_EQ(found[i].side, found[0].side);
      }
    }
    EXPECT_EQ(factors.end_state(), next);
  }
}

TEST(FactorLayout, GivesNothingToAxesWithoutFactors) {
  const Blocking cut(AxisSizes(Shape{3, 9, 4}), Blocking::kUncut);
  const FactorLayout factors(
      cut, {.axes = 0b101, .states_per_kind = 2, .first_state = 1});
  EXPECT_EQ(factors.num_factors(), 2);
  EXPECT_FALSE(factors.has_factor(1));
  EXPECT_EQ(factors.place(cut.block(0), 2).first_state, 3);
  EXPECT_EQ(factors.place(cut.block(0), 2).failures, 1);
  EXPECT_EQ(factors.end_state(), 5);
}

}  // namespace
}  // namespace canzona::rules::factor_layout_test

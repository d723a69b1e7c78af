#include "canzona/rules/shampoo/facts.h"

#include <gmock/gmock.h>

#include <set>

namespace canzona::rules::shampoo_layout_test {
namespace {

using Shape = std::vector<int64_t>;

ShampooOptions cut_at(const char* max_dim) {
  return ShampooOptions(
      RuleOptions{{"max_preconditioner_dim", max_dim}, {"merge", "off"}});
}

// Every matrix of every stack, and every counter, belongs to one factor.
TEST(ShampooLayout, GivesEveryFactorAPlaceOfItsOwn) {
  for (const Shape& dims : {Shape{5, 3}, Shape{6, 4}, Shape{7}, Shape{1, 5},
                            Shape{5, 4, 7}, Shape{2, 2, 2, 3}}) {
    const ShampooLayout layout(cut_at("2"), dims);
    const std::vector<StateFact> states = layout.states(dims);
    std::set<std::pair<int, int64_t>> factors;
    std::set<int64_t> counters;
    for (int64_t b = 0; b < layout.blocking().num_blocks(); ++b) {
      const TensorBlock block = layout.blocking().block(b);
      for (int axis = 0; axis < layout.blocking().order(); ++axis) {
        const FactorPlace place = layout.factors().place(block, axis);
        const StateFact& factor =
            states.at(static_cast<size_t>(place.first_state));
        const StateFact& root =
            states.at(static_cast<size_t>(place.first_state + 1));
        EXPECT_EQ(root.name, "inv_" + factor.name);
        EXPECT_EQ(factor.shape, (Shape{place.stack, place.side, place.side}));
        EXPECT_EQ(place.side, block.sizes[axis]);
        EXPECT_LT(place.place, place.stack);
        EXPECT_TRUE(factors.insert({place.first_state, place.place}).second);
        EXPECT_TRUE(counters.insert(place.failures).second);
      }
    }
    int64_t matrices = 0;
    for (const StateFact& state : states)
      if (state.initially == Initially::kIdentity) matrices += state.shape[0];
    EXPECT_EQ(static_cast<int64_t>(factors.size()), matrices);
    EXPECT_EQ(static_cast<int64_t>(counters.size()), states.back().elements());
    EXPECT_EQ(*counters.rbegin() + 1, states.back().elements());
  }
}

TEST(ShampooLayout, NumbersStatesAsItListsThem) {
  const Shape dims = {5, 3};
  const ShampooLayout layout(cut_at("2"), dims);
  const std::vector<StateFact> states = layout.states(dims);
  const auto name = [&](int number) {
    return states.at(static_cast<size_t>(number)).name;
  };
  EXPECT_EQ(name(layout.filtered_grad()), "filtered_grad");
  EXPECT_EQ(name(layout.grafting()), "grafting_avg_sq");
  EXPECT_EQ(name(layout.refresh_failures()), "refresh_failures");
  const TensorBlock last = layout.blocking().block(5);
  EXPECT_EQ(name(layout.factors().place(last, 0).first_state), "L_edge");
  EXPECT_EQ(name(layout.factors().place(last, 1).first_state + 1),
            "inv_R_edge");
}

TEST(ShampooLayout, ListsAClassicMomentumLast) {
  for (const char* start : {"auto", "never"}) {
    const ShampooOptions options(
        RuleOptions{{"classic_momentum", "0.5"}, {"start_step", start}});
    const Shape dims = {5, 3};
    const ShampooLayout layout(options, dims);
    const std::vector<StateFact> states = layout.states(dims);
    EXPECT_EQ(layout.momentum() + 1, std::ssize(states));
    EXPECT_EQ(states.back().name, "momentum");
  }
}

TEST(ShampooLayout, HasNoPlaceForWhatIsNotKept) {
  const ShampooOptions options(
      RuleOptions{{"beta1", "0"}, {"grafting", "none"}, {"exponent", "0"}});
  const Shape dims = {5, 3};
  const ShampooLayout layout(options, dims);
  EXPECT_EQ(layout.filtered_grad(), ShampooLayout::kNone);
  EXPECT_EQ(layout.grafting(), ShampooLayout::kNone);
  EXPECT_EQ(layout.refresh_failures(), ShampooLayout::kNone);
  EXPECT_EQ(layout.momentum(), ShampooLayout::kNone);
  EXPECT_EQ(layout.num_factors(), 0);
  EXPECT_TRUE(layout.states(dims).empty());
}

}  // namespace
}  // namespace canzona::rules::shampoo_layout_test

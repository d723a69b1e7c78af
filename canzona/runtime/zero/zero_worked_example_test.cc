// The example with which the documentation explains hierarchical ZeRO: four
// data-parallel ranks in groups of two; A is owned by rank 0, B by 2, C by 3.
#include <gmock/gmock.h>

#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::zero_worked_example_test {
namespace {

using testing::ElementsAre;

// Elements of A 8 x 5, B 6 x 3, C 4 x 5, and of their halves.
constexpr int64_t kA = 40, kB = 18, kC = 20;
constexpr int64_t kHalfA = 20, kHalfB = 9, kHalfC = 10;
constexpr int64_t kHalfAll = kHalfA + kHalfB + kHalfC;

Plan example() {
  const Model model = model_of({matrix_tensor("A", 8, 5, Cut::kNone, 0),
                                matrix_tensor("B", 6, 3, Cut::kNone, 0),
                                matrix_tensor("C", 4, 5, Cut::kNone, 0)});
  Plan plan = small_plan(model, {.mesh = "dp=4", .zero = "hier:2"});
  plan.parts[0].buckets = {{0, {0, 1, 2}, 3, {0, kA, kA + kB + kC}, {0, 0, 0}}};
  plan.parts[0].home = {0, 1, 1};
  plan.parts[0].owners = {};
  for (const int32_t owner : {0, 0, 1}) plan.parts[0].owners.push_back(owner);
  plan.parts[0].micro_group = {0, 0, 0};
  derive(plan);
  summarize(plan);
  return plan;
}

struct RankView {
  explicit RankView(const Plan& plan, int32_t rank)
      : at(coordinates_of(plan.parts[0].grid, rank)),
        layout(lay_out_rank(plan.parts[0], at)),
        kept(kept_by(plan.parts[0], at, layout)),
        rounds(make_rounds(plan.parts[0], at, kept, 1)) {}
  Coordinates at;
  RankLayout layout;
  Kept kept;
  std::vector<Round> rounds;
};

// Elements sent to each rank of a home.
std::vector<int64_t> sent(const ExchangeTable& cut,
                          const ExchangeTable& uncut) {
  std::vector<int64_t> bytes(2, 0);
  for (const ExchangeTable* table : {&cut, &uncut})
    for (size_t r = 0; r < table->send_bytes.size(); ++r)
      bytes[r] += table->send_bytes[r];
  return bytes;
}

class ZeroExample : public testing::Test {
 protected:
  ZeroExample() {
    for (int32_t r = 0; r < 4; ++r) ranks_.emplace_back(plan_, r);
  }
  Plan plan_ = example();
  std::vector<RankView> ranks_;
};

TEST_F(ZeroExample, IsAPlan) {
  EXPECT_THAT(validate(plan_), testing::IsEmpty());
  EXPECT_EQ(plan_.parts[0].grid.dp, 2);
  EXPECT_EQ(plan_.parts[0].grid.places, 2);
}

// Upper halves are on ranks 0 and 2, lower ones on 1 and 3.
TEST_F(ZeroExample, RanksKeepHalves) {
  for (size_t r = 0; r < 4; ++r)
    for (const FlatLayout* layout :
         {&ranks_[r].layout.parameters, &ranks_[r].layout.gradients}) {
      SCOPED_TRACE(cat("rank ", r));
      EXPECT_EQ(layout->num_elements, kHalfAll);
      const std::vector<int64_t> halves{kHalfA, kHalfB, kHalfC};
      for (size_t t = 0; t < 3; ++t) {
        ASSERT_EQ(layout->pieces[t].size(), 1U);
        EXPECT_EQ(layout->pieces[t][0].count, halves[t]);
        EXPECT_EQ(layout->pieces[t][0].from, r % 2 == 0 ? 0 : halves[t]);
      }
    }
}

// Between groups: [A | B C]; ranks 0 and 1 get the first part of their halves,
// 2 and 3 the second.
TEST_F(ZeroExample, HomesAreGroups) {
  for (size_t r = 0; r < 4; ++r) {
    SCOPED_TRACE(cat("rank ", r));
    const Region& region = ranks_[r].layout.gradients.buckets[0].matrices;
    EXPECT_EQ(region.all.count, kHalfA + kHalfB + kHalfC);
    EXPECT_EQ(region.own,
              r < 2 ? (Extent{0, kHalfA}) : (Extent{kHalfA, kHalfB + kHalfC}));
  }
}

// 1 → 0: A's lower half; 3 → 2: B's lower; 2 → 3: C's upper; and back.
TEST_F(ZeroExample, HalvesGoToOwnersAndUpdatesBack) {
  const auto bytes = [](int64_t elements) { return 4 * elements; };
  for (const RankView& rank : ranks_) ASSERT_EQ(rank.rounds.size(), 1U);
  const auto to_owners = [&](size_t r) {
    return sent(ranks_[r].rounds[0].gather[0], ranks_[r].rounds[0].gather[1]);
  };
  EXPECT_THAT(to_owners(0), ElementsAre(0, 0));
  EXPECT_THAT(to_owners(1), ElementsAre(bytes(kHalfA), 0));
  EXPECT_THAT(to_owners(2), ElementsAre(0, bytes(kHalfC)));
  EXPECT_THAT(to_owners(3), ElementsAre(bytes(kHalfB), 0));
  const auto back = [&](size_t r) {
    return sent(ranks_[r].rounds[0].scatter[0], ranks_[r].rounds[0].scatter[1]);
  };
  EXPECT_THAT(back(0), ElementsAre(0, bytes(kHalfA)));
  EXPECT_THAT(back(1), ElementsAre(0, 0));
  EXPECT_THAT(back(2), ElementsAre(0, bytes(kHalfB)));
  EXPECT_THAT(back(3), ElementsAre(bytes(kHalfC), 0));
}

TEST_F(ZeroExample, OwnersCompute) {
  std::vector<std::vector<int32_t>> computed(4);
  for (size_t r = 0; r < 4; ++r)
    for (const SlotMatrix& matrix : ranks_[r].rounds[0].computed)
      computed[r].push_back(
          ranks_[r].kept.matrices[static_cast<size_t>(matrix.kept)].matrix);
  EXPECT_THAT(computed, ElementsAre(ElementsAre(0), ElementsAre(),
                                    ElementsAre(1), ElementsAre(2)));
}

// Counted in a run, by rank.
TEST_F(ZeroExample, SendsThatAndNothingElse) {
  const TrialResult result = run_trial({.plan = plan_, .steps = 1});
  const auto counted = [&](int64_t Groups::Sent::*field) {
    std::vector<int64_t> elements;
    for (const Groups::Sent& of_rank : result.sent)
      elements.push_back(of_rank.*field / 4);
    return elements;
  };
  using Sent = Groups::Sent;
  EXPECT_THAT(
      counted(&Sent::parameter_gather),
      ElementsAre(2 * kHalfAll, 2 * kHalfAll, 2 * kHalfAll, 2 * kHalfAll));
  EXPECT_THAT(counted(&Sent::gradient_scatter),
              ElementsAre(kHalfAll, kHalfAll, kHalfAll, kHalfAll));
  EXPECT_THAT(counted(&Sent::reduce_scatter),
              ElementsAre(kHalfB + kHalfC, kHalfB + kHalfC, kHalfA, kHalfA));
  EXPECT_THAT(counted(&Sent::gather), ElementsAre(0, kHalfA, kHalfC, kHalfB));
  EXPECT_THAT(counted(&Sent::scatter), ElementsAre(kHalfA, 0, kHalfB, kHalfC));
  EXPECT_THAT(counted(&Sent::all_gather),
              ElementsAre(kHalfA, kHalfA, kHalfB + kHalfC, kHalfB + kHalfC));
  EXPECT_THAT(counted(&Sent::all_reduce), ElementsAre(0, 0, 0, 0));
}

TEST_F(ZeroExample, GivesTheResultOfPlainRanks) {
  const Trial plain{.plan = small_plan(plan_.model, {.mesh = "dp=4"}),
                    .gradients = GradientKind::kRandom};
  const TrialResult expected = run_trial(plain);
  const TrialResult got =
      run_trial({.plan = plan_, .gradients = GradientKind::kRandom});
  EXPECT_EQ(got.parameters, expected.parameters);
  EXPECT_EQ(got.states, expected.states);
}

}  // namespace
}  // namespace canzona::runtime::zero_worked_example_test

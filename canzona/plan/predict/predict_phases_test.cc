// Refreshes: the makespan of a period against one that walks over its steps.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::predict_phases_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Plan soap_plan(int32_t period, int32_t phases, const std::string& mesh,
               const std::string& strategy = "balanced") {
  return plan_of(
      toy_model(3), mesh, with_strategy(strategy),
      {"soap",
       {{"precondition_frequency", cat(period)}, {"phases", cat(phases)}}});
}

// Largest load of each step of a period. In step s < phases the matrices whose
// place in name order is s modulo phases refresh.
std::vector<int64_t> step_loads(const Plan& plan, int32_t period,
                                int32_t phases) {
  std::map<std::string, size_t> by_name;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    by_name[matrix_name(plan.model, plan.matrices[m], plan.options.splits)] = m;
  }
  std::vector<int64_t> largest;
  for (int32_t step = 0; step < period; ++step) {
    std::map<std::pair<int32_t, int32_t>, int64_t> loads;  // by home and t
    int32_t place = 0;
    for (const auto& [name, m] : by_name) {
      const bool refreshes = place++ % phases == step;
      const auto tensor = static_cast<size_t>(plan.matrices[m].tensor);
      loads[{plan.parts[0].home[tensor], plan.parts[0].owners[m].front()}] +=
          plan.costs[m].every_step.value() +
          (refreshes ? plan.costs[m].refresh.value() : 0);
    }
    int64_t most = 0;
    for (const auto& [rank, load] : loads) most = std::max(most, load);
    largest.push_back(most);
  }
  return largest;
}

int64_t sum_of(const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (int64_t v : values) sum += v;
  return sum;
}

struct PhaseCase {
  int32_t period;
  int32_t phases;
};

class Phases : public ::testing::TestWithParam<PhaseCase> {};
INSTANTIATE_TEST_SUITE_P(All, Phases,
                         ::testing::Values(PhaseCase{1, 1}, PhaseCase{2, 1},
                                           PhaseCase{6, 1}, PhaseCase{6, 2},
                                           PhaseCase{6, 5}, PhaseCase{6, 6},
                                           PhaseCase{9, 9}));

TEST_P(Phases, MakespanIsTheSumOverTheStepsOfAPeriod) {
  const auto [period, phases] = GetParam();
  for (const char* mesh : {"dp=1", "dp=4", "dp=2,tp=2", "dp=8"}) {
    for (const char* strategy : {"balanced", "contiguous", "megatron"}) {
      const Plan plan = soap_plan(period, phases, mesh, strategy);
      const std::vector<int64_t> steps = step_loads(plan, period, phases);
      EXPECT_EQ(makespan(plan, predict(plan)).value(), sum_of(steps))
          << strategy << " on " << mesh;
      EXPECT_EQ(plan.summary.makespan.value(), sum_of(steps));
    }
  }
}

TEST_P(Phases, RanksKnowTheirWorstStep) {
  const auto [period, phases] = GetParam();
  const Plan plan = soap_plan(period, phases, "dp=4");
  const std::vector<int64_t> steps = step_loads(plan, period, phases);
  double worst = 0, mean = 0;
  for (const RankCost& rank : predict(plan)) {
    worst = std::max(worst, rank.transform_seconds_worst);
    mean = std::max(mean, rank.step_seconds_mean);
  }
  const double tick = plan.cost_basis.seconds_per_tick;
  const auto most =
      static_cast<double>(*std::max_element(steps.begin(), steps.end()));
  EXPECT_DOUBLE_EQ(worst, most * tick);
  // A rank's mean cannot exceed the mean over steps of the largest load.
  EXPECT_LE(mean,
            static_cast<double>(sum_of(steps)) * tick / period * (1 + 1e-12));
}

TEST(Phases, HaveAnOutlookOnTheirNeighbours) {
  const Plan plan = soap_plan(12, 4, "dp=2,tp=2");
  std::vector<int32_t> phases;
  for (const PhaseOutlook& outlook : phase_outlook(plan)) {
    phases.push_back(outlook.phases);
    const auto steps = step_loads(plan, 12, outlook.phases);
    const auto worst =
        static_cast<double>(*std::max_element(steps.begin(), steps.end()));
    EXPECT_DOUBLE_EQ(outlook.mean_step,
                     static_cast<double>(sum_of(steps)) / 12);
    EXPECT_DOUBLE_EQ(outlook.worst_step, worst);
    EXPECT_DOUBLE_EQ(outlook.worst_seconds, worst / 400e12);
    EXPECT_DOUBLE_EQ(outlook.mean_seconds, outlook.mean_step / 400e12);
  }
  EXPECT_THAT(phases, ElementsAre(2, 4, 8));
}

std::vector<int32_t> neighbours(int32_t period, int32_t phases) {
  std::vector<int32_t> out;
  for (const PhaseOutlook& outlook :
       phase_outlook(soap_plan(period, phases, "dp=2"))) {
    out.push_back(outlook.phases);
  }
  return out;
}

TEST(Phases, NeighboursStayWithinThePeriod) {
  EXPECT_THAT(neighbours(10, 1), ElementsAre(1, 2));
  EXPECT_THAT(neighbours(10, 5), ElementsAre(2, 5, 10));
  EXPECT_THAT(neighbours(10, 6), ElementsAre(3, 6));
  EXPECT_THAT(neighbours(10, 10), ElementsAre(5, 10));
  EXPECT_THAT(neighbours(1, 1), IsEmpty());
  EXPECT_THAT(phase_outlook(plan_of(toy_model(), "dp=2")), IsEmpty());
}

// One matrix per rank: spread over two phases, each refresh has a step to
// itself. The worst step stays, the mean grows.
TEST(Phases, SpreadingCostsMeanTimeWhereRanksAreMany) {
  PlanOptions options;
  const RuleChoice together{"soap", {{"precondition_frequency", "4"}}};
  const Plan plan = plan_of(squares({8, 8}), "dp=2", options, together);
  const auto outlook = phase_outlook(plan);
  ASSERT_EQ(outlook.size(), 2u);
  EXPECT_EQ(outlook[0].worst_step, outlook[1].worst_step);
  EXPECT_LT(outlook[0].mean_step, outlook[1].mean_step);
}

// Two matrices on one rank: spreading halves what a refresh adds to a step.
TEST(Phases, SpreadingLowersTheWorstStep) {
  const Plan plan = plan_of(squares({8, 8}), "dp=1", {},
                            {"soap", {{"precondition_frequency", "4"}}});
  const auto outlook = phase_outlook(plan);
  ASSERT_EQ(outlook.size(), 2u);
  EXPECT_GT(outlook[0].worst_step, outlook[1].worst_step);
  EXPECT_DOUBLE_EQ(outlook[0].mean_step, outlook[1].mean_step);
}

}  // namespace
}  // namespace canzona::plan::predict_phases_test

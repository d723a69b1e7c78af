// Experts that are cut over other ranks than dense tensors.
#include "canzona/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::plan_parts_test {
namespace {

PlanOptions sizes(const ZeroSizes& dense, const ZeroSizes& experts = {}) {
  PlanOptions options;
  options.zero.sizes = dense;
  options.zero.experts = experts;
  options.ranks_per_node = 2;
  return options;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// dp=4, ep=2: of four homes in a row two have each coordinate.
TEST(SizesOfExperts, LieOnTheRanksOfDenseOnes) {
  const Mesh mesh = parse_mesh("dp=4,ep=2");
  EXPECT_EQ(experts_beside({8, 4, 4}, mesh), (ZeroSizes{4, 2, 2}));
  EXPECT_EQ(experts_beside({8, 8, 8}, mesh), (ZeroSizes{4, 4, 4}));
  EXPECT_EQ(experts_beside({8, 1, 1}, mesh), (ZeroSizes{4, 1, 1}));
  EXPECT_EQ(experts_beside({1, 1, 1}, mesh), (ZeroSizes{1, 1, 1}));
  EXPECT_EQ(experts_beside({2, 2, 1}, mesh), (ZeroSizes{1, 1, 1}));
  const Mesh with_cp = parse_mesh("dp=2,ep=2,cp=2");
  EXPECT_EQ(experts_beside({8, 4, 2}, with_cp), (ZeroSizes{4, 2, 2}));
}

// Without expert parallelism all homes have every expert.
TEST(SizesOfExperts, AreThoseOfDenseOnesWithoutExpertParallelism) {
  const Mesh mesh = parse_mesh("dp=3,cp=2");
  EXPECT_EQ(experts_beside({6, 3, 3}, mesh), (ZeroSizes{6, 3, 3}));
  const Plan plan = plan_of(toy_model(), "dp=3,cp=2", sizes({6, 3, 3}));
  EXPECT_EQ(plan.parts.size(), 1U);
  EXPECT_EQ(validate(plan_from_json(plan_to_json(plan), "a plan").plan),
            std::vector<std::string>());
}

TEST(SizesOfExperts, AreAlwaysValid) {
  for (const char* text : {"dp=4,ep=2", "dp=3,ep=2", "dp=2,ep=4,cp=2",
                           "dp=1,ep=4", "dp=6,ep=2,cp=3"}) {
    const Mesh mesh = parse_mesh(text);
    for (const ZeroSizes& dense : all_zero_sizes(mesh.homes()))
      EXPECT_NO_THROW(
          check_zero(experts_beside(dense, mesh), mesh.expert_homes()))
          << text << " " << to_string(dense);
  }
}

TEST(PlanInParts, IsMadeOnlyWhereItIsNeeded) {
  const Model moe = toy_moe();
  EXPECT_EQ(plan_of(moe, "dp=2,ep=2").parts.size(), 1U);
  EXPECT_EQ(plan_of(moe, "dp=2,ep=2", sizes({4, 1, 1})).parts.size(), 1U);
  EXPECT_EQ(plan_of(moe, "dp=4", sizes({4, 2, 2})).parts.size(), 1U);
  EXPECT_EQ(plan_of(moe, "dp=4", sizes({4, 2, 2}, {4, 2, 2})).parts.size(), 1U);
  EXPECT_EQ(plan_of(moe, "dp=2,ep=2", sizes({4, 2, 2})).parts.size(), 3U);
  EXPECT_EQ(plan_of(moe, "dp=2,ep=2", sizes({4, 1, 1}, {2, 2, 2})).parts.size(),
            3U);
  EXPECT_EQ(plan_of(moe, "dp=4", sizes({4, 2, 2}, {4, 4, 4})).parts.size(), 2U);
}

TEST(PlanInParts, NamesWhatDoesNotFit) {
  EXPECT_TRUE(says(refusal([] {
                     plan_of(toy_model(), "dp=4", sizes({4, 1, 1}, {2, 2, 2}));
                   }),
                   "by hand has no experts"));
  EXPECT_TRUE(
      says(refusal([] {
             plan_of(toy_moe(), "dp=2,ep=2", sizes({4, 2, 2}, {4, 1, 1}));
           }),
           "zero-experts: z1 = 4 does not divide the 2"));
}

// Every pair of sizes, on meshes with and without tp, pp and cp.
TEST(PlanInParts, IsSoundAndReadsBackAsItWasWritten) {
  for (const char* text :
       {"dp=2,ep=2", "dp=2,ep=2,tp=2", "dp=2,ep=2,pp=2", "dp=1,cp=2,ep=2"}) {
    const Mesh mesh = parse_mesh(text);
    for (const ZeroSizes& dense : all_zero_sizes(mesh.homes()))
      for (const ZeroSizes& experts : all_zero_sizes(mesh.expert_homes())) {
        const Plan plan = plan_of(toy_moe(), text, sizes(dense, experts));
        SCOPED_TRACE(cat(text, " ", to_string(dense), " ", to_string(experts)));
        EXPECT_EQ(validate(plan), std::vector<std::string>());
        const ReadPlan read = plan_from_json(plan_to_json(plan), "a plan");
        EXPECT_TRUE(read.digest_matches);
        EXPECT_EQ(validate(read.plan), std::vector<std::string>());
      }
  }
}

TEST(PlanInParts, WorksForEveryStrategy) {
  for (const std::string& name : strategy_names()) {
    PlanOptions options = sizes({4, 2, 2});
    options.strategy = name;
    const Plan plan = plan_of(toy_moe(), "dp=2,ep=2", options);
    EXPECT_EQ(validate(plan), std::vector<std::string>()) << name;
    EXPECT_GE(measure_balance(plan).makespan_over_mean, 1) << name;
  }
}

TEST(PlanInParts, HasEveryTensorOnce) {
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2", sizes({4, 2, 2}));
  std::vector<int> times(plan.model.tensors.size(), 0);
  ASSERT_EQ(plan.parts.size(), 3U);
  for (int32_t part = 0; part < 3; ++part)
    for (int32_t t : plan.parts[static_cast<size_t>(part)].tensors) {
      ++times[static_cast<size_t>(t)];
      const int32_t e = plan.model.tensors[static_cast<size_t>(t)].expert;
      EXPECT_EQ(part, e < 0 ? 0 : 1 + e / 2);
    }
  EXPECT_EQ(times, std::vector<int>(times.size(), 1));
}

// dp=2, ep=2: ranks 0 and 2 have coordinate 0, ranks 1 and 3 coordinate 1.
TEST(PlanInParts, KnowsItsRanks) {
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2,tp=2", sizes({4, 2, 2}));
  for (int32_t r = 0; r < plan.mesh.world(); ++r)
    for (const RankInPart& at : parts_of_rank(plan, r)) {
      const PlanPart& part = plan.parts[static_cast<size_t>(at.part)];
      EXPECT_EQ(part.rank_in_whole(at.rank), r);
      EXPECT_EQ(part.node_of(at.rank), r / 2);
    }
  EXPECT_EQ(parts_of_rank(plan, 2)[1].part, 2);
  EXPECT_EQ(parts_of_rank(plan, 4)[1].rank, 2);
}

TEST(PlanInParts, CountsBucketsOverAllParts) {
  const Plan made = plan_of(toy_moe(), "dp=2,ep=2", sizes({4, 2, 2}));
  for (const Plan& plan :
       {made, plan_from_json(plan_to_json(made), "a plan").plan}) {
    size_t first = 0;
    for (const PlanPart& part : plan.parts) {
      EXPECT_EQ(static_cast<size_t>(part.first_bucket), first);
      first += part.buckets.size();
    }
    EXPECT_GT(first, plan.parts.size());
  }
}

// With one stage all ranks share the work: no plan is below the mean.
TEST(PlanInParts, IsBoundByTheWorkOfAllParts) {
  for (const char* text : {"dp=2,ep=2", "dp=2,ep=2,tp=2", "dp=4"}) {
    const Mesh mesh = parse_mesh(text);
    for (const ZeroSizes& dense : all_zero_sizes(mesh.homes()))
      for (const ZeroSizes& experts : all_zero_sizes(mesh.expert_homes())) {
        const PlanSummary summary =
            plan_of(toy_moe(), text, sizes(dense, experts)).summary;
        SCOPED_TRACE(cat(text, " ", to_string(dense), " ", to_string(experts)));
        EXPECT_LE(summary.bound, summary.makespan);
        EXPECT_GE(static_cast<double>(summary.bound.value()),
                  std::floor(summary.mean));
      }
  }
}

// The number of owners is unchanged, but one is in another part.
TEST(PlanInParts, WantsTheOwnersOfEachPart) {
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2", sizes({4, 2, 2}));
  std::string text = plan_to_json(plan);
  const std::string key = "\"owners\":[";
  const size_t first = text.find(key) + key.size();
  text.insert(first, "0,");
  const size_t second = text.find(key, first) + key.size();
  text.erase(second, text.find(',', second) + 1 - second);
  EXPECT_TRUE(
      says(refusal([&] { plan_from_json(text, "a plan"); }), "owners of"));
}

// fp32 parameters take 4 bytes an element, each kept by homes / z3 homes.
TEST(PlanInParts, AddsUpMemory) {
  PlanOptions options = sizes({4, 2, 2}, {2, 1, 2});
  options.parameters = DType::kFp32;
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2", options);
  int64_t dense = 0, experts = 0, kept = 0;
  for (const Tensor& t : plan.model.tensors)
    (t.expert < 0 ? dense : experts) += t.elements();
  for (const RankCost& rank : predict(plan))
    kept += rank.memory.parameters.value();
  EXPECT_EQ(kept, 4 * (dense * 4 / 2 + experts * 2 / 2));
}

TEST(PlanInParts, KeepsTheRefreshPhasesOfTheWholeModel) {
  const RuleChoice soap{"soap",
                        {{"precondition_frequency", "4"}, {"phases", "3"}}};
  const Plan plain = plan_of(toy_moe(), "dp=2,ep=2", {}, soap);
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2", sizes({4, 4, 4}), soap);
  ASSERT_EQ(plain.phases, 3);
  EXPECT_EQ(plan.phase, plain.phase);
  for (int32_t part = 0; part < 3; ++part) {
    std::vector<int32_t> expected;
    for (int32_t t : plan.parts[static_cast<size_t>(part)].tensors)
      for (int32_t m = plain.first_matrix[static_cast<size_t>(t)];
           m < plain.first_matrix[static_cast<size_t>(t) + 1]; ++m)
        expected.push_back(plain.phase[static_cast<size_t>(m)]);
    EXPECT_EQ(plan.parts[static_cast<size_t>(part)].phase, expected);
  }
  for (const PhaseOutlook& outlook : phase_outlook(plan))
    EXPECT_GT(outlook.worst_step, 0);
}

TEST(PlanInParts, PrefetchesAsFarAsTheCapLeavesRoom) {
  PlanOptions options = sizes({4, 4, 4});
  options.zero.prefetch = 0;
  const Plan least = plan_of(toy_moe(4), "dp=2,ep=2", options);
  options.zero.prefetch = kAutoPrefetch;
  options.memory_cap_bytes = least.summary.memory_per_rank_max.value();
  const Plan tight = plan_of(toy_moe(4), "dp=2,ep=2", options);
  EXPECT_EQ(tight.options.zero.prefetch, 0);
  EXPECT_EQ(validate(tight), std::vector<std::string>());
  options.memory_cap_bytes *= 10;
  const Plan wide = plan_of(toy_moe(4), "dp=2,ep=2", options);
  EXPECT_GT(wide.options.zero.prefetch, 3);
  EXPECT_EQ(validate(wide), std::vector<std::string>());
  options.memory_cap_bytes = least.summary.memory_per_rank_max.value() - 1;
  const std::vector<std::string> violations =
      validate(plan_of(toy_moe(4), "dp=2,ep=2", options));
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_TRUE(says(violations[0], "need more memory than the cap"));
}

TEST(PlanInParts, IsRefusedWherePartsAreMissing) {
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2", sizes({4, 2, 2}));
  Plan shorter = plan;
  shorter.parts.pop_back();
  EXPECT_EQ(validate(shorter).size(), 1U);
  EXPECT_TRUE(
      says(refusal([&] { plan_from_json(plan_to_json(shorter), "a plan"); }),
           "a plan: "));
  Plan other = plan;
  std::swap(other.parts[1], other.parts[2]);
  EXPECT_FALSE(validate(other).empty());
  // A plan file with slices over ep but without parts is refused.
  std::string text = plan_to_json(plan);
  const size_t at = text.find(",\"experts\":[2,1,1]");
  ASSERT_NE(at, std::string::npos);
  text.erase(at, std::string(",\"experts\":[2,1,1]").size());
  EXPECT_TRUE(says(refusal([&] { plan_from_json(text, "a plan"); }),
                   "does not apply to a plan on dp=2,ep=2"));
}

}  // namespace
}  // namespace canzona::plan::plan_parts_test

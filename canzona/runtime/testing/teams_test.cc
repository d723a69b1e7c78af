// Ranks that share matrices in teams give the bits of ranks that own them, send
// and reserve what the plan says, and fail together.
#include <gmock/gmock.h>

#include <set>

#include "canzona/plan/predict/predict.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::teams_test {
namespace {

using ::testing::HasSubstr;

// Wide and tall ones, cut along the strips and across them, one that every rank
// has, one row, a side that is no multiple of 64, and one without strips.
Model shared_model() {
  std::vector<Tensor> tensors;
  tensors.push_back(matrix_tensor("wide.rows", 24, 520, Cut::kRows));
  tensors.push_back(matrix_tensor("wide.columns", 40, 576, Cut::kColumns));
  tensors.push_back(matrix_tensor("tall.rows", 536, 16, Cut::kRows));
  tensors.push_back(matrix_tensor("tall.columns", 640, 24, Cut::kColumns));
  tensors.push_back(matrix_tensor("everywhere", 12, 531, Cut::kNone));
  tensors.push_back(matrix_tensor("row", 1, 512, Cut::kColumns));
  tensors.push_back(matrix_tensor("small", 16, 24, Cut::kRows));
  tensors.push_back(adamw_tensor("norm", 48));
  return model_of(std::move(tensors));
}

// How large the teams of a plan's matrices are made, and where they begin.
using Sizes = std::function<int32_t(size_t matrix)>;

Plan with_teams(Plan plan, const Sizes& size_of) {
  plan.options.teams = kTeamsAuto;
  for (PlanPart& part : plan.parts) {
    part.options.teams = kTeamsAuto;
    const auto facts = make_rule_facts(part.rule, part.rule_options);
    OwnerLists owners;
    for (size_t m = 0; m < part.matrices.size(); ++m) {
      const Matrix& matrix = part.matrices[m];
      const int strips = facts->strips({matrix.rows, matrix.cols}).strips;
      const int32_t size =
          std::min({size_of(m), part.grid.tp, static_cast<int32_t>(strips)});
      std::vector<int32_t> team;
      for (int32_t i = 0; i < size; ++i)
        team.push_back(
            static_cast<int32_t>((3 * m + static_cast<size_t>(i) * 3) %
                                 static_cast<size_t>(part.grid.tp)));
      if (size <= 1 || part.owners[m].empty())
        owners.push_back(part.owners[m]);
      else
        owners.push_back(team);
    }
    part.owners = owners;
  }
  return plan;
}

RuleOptions strips(int count, const std::string& form = "auto",
                   const std::string& precision = "auto") {
  return {{"strips", std::to_string(count)},
          {"newton_schulz", form},
          {"precision", precision}};
}

struct TeamDigests {
  std::string parameters, states;
  auto operator<=>(const TeamDigests&) const = default;
};

TeamDigests digests_of_teams(const Trial& trial) {
  const TrialResult result = run_trial(trial);
  return {result.parameters, result.states};
}

Plan team_plan(const std::string& mesh, const RuleOptions& options,
               const Sizes& sizes) {
  PlanWish wish{.mesh = mesh, .options = options};
  wish.capacity_bytes = 200'000;
  return with_teams(small_plan(shared_model(), wish), sizes);
}

TEST(Teams, GiveTheBitsOfWholeOwners) {
  for (const int count : {2, 8})
    for (const std::string form : {"gram", "symmetric", "standard"})
      for (const std::string precision : {"bf16", "fp32"}) {
        const RuleOptions options = strips(count, form, precision);
        std::set<TeamDigests> seen;
        for (const std::string mesh : {"dp=1", "tp=2", "dp=2,tp=4", "tp=8"})
          for (const int32_t size : {1, 2, 4, 8}) {
            SCOPED_TRACE(
                cat(count, " ", form, " ", precision, " ", mesh, " ", size));
            seen.insert(digests_of_teams(
                {.plan = team_plan(mesh, options, [&](size_t) { return size; }),
                 .clip_norm = 0.5}));
            ASSERT_EQ(seen.size(), 1U);
          }
      }
}

TEST(Teams, OfAllSizesMayMix) {
  std::set<TeamDigests> seen;
  const int32_t sizes[] = {1, 2, 4, 8, 4, 2, 1, 8};
  for (const size_t turn : {0, 1, 2, 3, 4})
    for (const bool pipelined : {true, false}) {
      SCOPED_TRACE(cat(turn, pipelined ? " pipelined" : " serial"));
      const Plan plan = team_plan("tp=8", strips(8), [&](size_t m) {
        return turn == 0 ? 1 : sizes[(m + turn) % std::size(sizes)];
      });
      seen.insert(digests_of_teams({.plan = plan,
                                    .gradients = GradientKind::kRandom,
                                    .steps = 20,
                                    .options = {.pipelined = pipelined}}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

TEST(Teams, SendAndReserveWhatThePlanSays) {
  for (const int32_t size : {2, 4, 8})
    for (const std::string mesh : {"tp=8", "dp=2,tp=4"}) {
      SCOPED_TRACE(cat(size, " ", mesh));
      const Plan plan =
          team_plan(mesh, strips(8), [&](size_t) { return size; });
      const std::vector<RankCost> predicted = predict(plan);
      constexpr int kSteps = 2;
      const TrialResult result = run_trial({.plan = plan, .steps = kSteps});
      int64_t in_teams = 0;
      for (size_t r = 0; r < predicted.size(); ++r) {
        SCOPED_TRACE(r);
        const auto sent = [&](Collective collective) {
          return predicted[r].wire[static_cast<size_t>(collective)].sent();
        };
        const int64_t teams =
            sent(Collective::kTeamSums) + sent(Collective::kTeamFactors);
        EXPECT_EQ(result.sent[r].teams, kSteps * teams);
        EXPECT_EQ(result.sent[r].gather, kSteps * sent(Collective::kGather));
        EXPECT_EQ(result.sent[r].scatter, kSteps * sent(Collective::kScatter));
        EXPECT_EQ(result.memory[r].buffers, predicted[r].memory.buffers);
        EXPECT_EQ(result.memory[r].states, predicted[r].memory.states);
        in_teams += teams;
      }
      EXPECT_GT(in_teams, 0);
    }
}

TEST(Teams, AreNamedWithTheMatrixByErrors) {
  const Plan plan = team_plan("tp=4", strips(8), [](size_t) { return 4; });
  Trial trial{.plan = plan};
  trial.before_step = [](Runtime& runtime, int64_t step) {
    if (step == 2 && runtime.coordinates().t == 2)
      throw std::runtime_error("this rank gives up");
  };
  try {
    run_trial(trial);
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("gives up"));
  }
}

}  // namespace
}  // namespace canzona::teams_test

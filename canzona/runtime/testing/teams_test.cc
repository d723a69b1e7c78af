// Ranks that share matrices in teams give the bits of ranks that own them, send
// and reserve what the plan says, and fail together.
#include <gmock/gmock.h>

#include <set>

#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/runtime/testing/test_bits.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_team_plans.h"

namespace canzona::runtime::teams_test {
namespace {

using ::testing::HasSubstr;

TEST(Teams, GiveTheBitsOfWholeOwners) {
  for (const int count : {2, 8})
    for (const std::string form : {"gram", "symmetric", "standard"})
      for (const std::string precision : {"bf16", "fp32"}) {
        const RuleOptions options = strips(count, form, precision);
        std::set<Bits> seen;
        for (const std::string mesh : {"dp=1", "tp=2", "dp=2,tp=4", "tp=8"})
          for (const int32_t size : {1, 2, 4, 8}) {
            SCOPED_TRACE(
                cat(count, " ", form, " ", precision, " ", mesh, " ", size));
            seen.insert(bits_of(
                {.plan = team_plan(mesh, options, [&](size_t) { return size; }),
                 .clip_norm = 0.5}));
            ASSERT_EQ(seen.size(), 1U);
          }
      }
}

TEST(Teams, OfAllSizesMayMix) {
  std::set<Bits> seen;
  const int32_t sizes[] = {1, 2, 4, 8, 4, 2, 1, 8};
  for (const size_t turn : {0, 1, 2, 3, 4})
    for (const bool pipelined : {true, false}) {
      SCOPED_TRACE(cat(turn, pipelined ? " pipelined" : " serial"));
      const Plan plan = team_plan("tp=8", strips(8), [&](size_t m) {
        return turn == 0 ? 1 : sizes[(m + turn) % std::size(sizes)];
      });
      seen.insert(bits_of({.plan = plan,
                           .gradients = GradientKind::kRandom,
                           .steps = 20,
                           .options = {.pipelined = pipelined}}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

// Homes of places: data-parallel ranks that share the slices of tensors.
TEST(Teams, OfPlacesGiveTheBitsOfWholeOwners) {
  for (const auto& [mesh, zero] :
       {std::pair{"dp=4", "hier:4"}, {"dp=4,tp=2", "hier:2"}}) {
    std::set<Bits> seen;
    for (const int32_t size : {1, 2, 4}) {
      SCOPED_TRACE(cat(mesh, " ", zero, " ", size));
      PlanWish wish{.mesh = mesh, .options = strips(8), .zero = zero};
      wish.capacity_bytes = 60'000;  // several rounds
      const Plan plan = share_matrices(small_plan(shared_model(), wish),
                                       [&](size_t) { return size; });
      seen.insert(bits_of({.plan = plan}));
      ASSERT_EQ(seen.size(), 1U);
    }
  }
}

// Strips are reloaded where squares would overflow or underflow.
TEST(Teams, GiveTheBitsOfWholeOwnersOfTinyAndHugeMatrices) {
  for (const float factor : {0.0F, 0x1p-100F, 0x1p90F}) {
    std::set<Bits> seen;
    for (const int32_t size : {1, 2, 4}) {
      SCOPED_TRACE(cat(factor, " ", size));
      Trial trial{
          .plan = team_plan("tp=4", strips(4), [&](size_t) { return size; })};
      trial.poison = [&](Runtime&, int64_t, int32_t, std::span<float> all) {
        for (float& x : all) x *= factor;
      };
      seen.insert(bits_of(trial));
      ASSERT_EQ(seen.size(), 1U);
    }
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

TEST(Teams, EndTogetherWhenARankFails) {
  expect_ranks_end_together(
      team_plan("tp=4", strips(8), [](size_t m) { return m % 2 == 0 ? 4 : 2; }),
      10);
}

// A rank of the second home that fails in any exchange of its teams, of which
// it is the head of some and a plain member of others. Teams are named by ranks
// of the world.
TEST(Teams, NameTheRankTheMatrixAndTheTeamInEveryExchange) {
  FaultTrial trial;
  trial.plan = team_plan("dp=2,tp=4", strips(8), [](size_t) { return 4; });
  trial.kind = Fault::kThrowInOperation;
  trial.at = "teams";
  std::set<std::string> labels;
  for (trial.victim = 4; trial.victim < 8; trial.victim += 3)
    for (trial.moment = 0; trial.moment < 15; ++trial.moment) {
      const FaultOutcome outcome = run_fault(trial);
      SCOPED_TRACE(cat("rank ", trial.victim, ", exchange ", trial.moment));
      ASSERT_TRUE(outcome.happened);
      EXPECT_THAT(outcome.stage, testing::StartsWith("teams"));
      EXPECT_THAT(outcome.label,
                  testing::ContainsRegex("^[a-z.]+, team \\([4-7, ]+\\)$"));
      expect_fault_words(trial, outcome);
      expect_team_is_named(trial, outcome);
      labels.insert(outcome.label);
    }
  EXPECT_GT(labels.size(), 1U);
}

// A CPU engine that reports different kernels.
class OtherKernels final : public CpuEngine {
 public:
  explicit OtherKernels(std::string core)
      : CpuEngine(usable_bf16_kernels().front()), core_(std::move(core)) {}
  std::string describe() const override { return "OpenBLAS 0 " + core_; }

 private:
  std::string core_;
};

TEST(Teams, NeedTheSameKernelsOnAllMembers) {
  const auto begin = [](int32_t size, const std::string& other) {
    const Plan plan =
        team_plan("dp=2,tp=2", strips(2), [&](size_t) { return size; });
    return [=] {
      run_ranks(4, [&](Communicator& world) {
        OtherKernels engine(world.rank() == 3 ? other : "SkylakeX");
        Runtime runtime(plan, world, engine, {});
      });
    };
  };
  EXPECT_THAT(begin(2, "Haswell"),
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  HasSubstr("is shared by ranks"), HasSubstr("SkylakeX"),
                  HasSubstr("Haswell"), HasSubstr("plan with teams=off"))));
  EXPECT_NO_THROW(begin(2, "SkylakeX")());
  EXPECT_NO_THROW(begin(1, "Haswell")());  // nothing is shared
}

// An engine that cannot share is rejected before any step.
TEST(Teams, NeedAnEngineThatShares) {
  const Plan plan = team_plan("tp=2", strips(2), [](size_t) { return 2; });
  LateDevice device;
  EXPECT_THAT(
      [&] {
        run_ranks(2, [&](Communicator& world) {
          LateEngine engine(device);
          engine.shares_matrices = false;
          Runtime runtime(plan, world, engine, {});
        });
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("plan with teams=off")));
}

}  // namespace
}  // namespace canzona::runtime::teams_test

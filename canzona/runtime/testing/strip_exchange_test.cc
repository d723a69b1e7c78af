// Matrices exchanged strip by strip get the bits of those exchanged whole, with
// the same bytes and slots, and ranks fail together.
#include <gmock/gmock.h>

#include <set>

#include "canzona/linalg/test_late_engine.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_team_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::strip_exchange_runtime_test {
namespace {

using ::testing::HasSubstr;

using StripDigests = std::pair<std::string, std::string>;

StripDigests digests_by(const Trial& trial) {
  const TrialResult result = run_trial(trial);
  return {result.parameters, result.states};
}

// `capacity` is that of a round; a small one gives several rounds.
Plan plan_by(ExchangeBy exchange, const std::string& mesh,
             const RuleOptions& options, int64_t capacity = 60'000,
             const Model& model = shared_model()) {
  PlanWish wish{.mesh = mesh, .options = options};
  wish.capacity_bytes = capacity;
  wish.exchange = exchange;
  return small_plan(model, wish);
}

// The number of matrices, over all ranks, that are exchanged strip by strip.
int count_by_strips(const Plan& plan) {
  int count = 0;
  for (const PlanPart& part : plan.parts)
    for (int32_t r = 0; r < part.grid.world(); ++r) {
      const Coordinates at = coordinates_of(part.grid, r);
      const Kept kept = kept_by(part, at, lay_out_rank(part, at));
      for (const Round& round : make_rounds(part, at, kept, 1))
        count += round.by_strips ? 1 : 0;
    }
  return count;
}

TEST(StripByStrip, HasTheBitsOfRounds) {
  for (const int count : {2, 4, 8})
    for (const std::string form : {"gram", "symmetric", "standard"})
      for (const std::string precision : {"bf16", "fp32"}) {
        const RuleOptions options = strips(count, form, precision);
        std::set<StripDigests> seen{
            digests_by({.plan = plan_by(ExchangeBy::kAuto, "dp=1", options),
                        .clip_norm = 0.5})};
        for (const std::string mesh : {"tp=2", "dp=2,tp=4", "tp=8"})
          for (const ExchangeBy how :
               {ExchangeBy::kRounds, ExchangeBy::kStrips}) {
            SCOPED_TRACE(cat(count, " ", form, " ", precision, " ", mesh, " ",
                             to_string(how)));
            const Plan plan = plan_by(how, mesh, options);
            EXPECT_EQ(count_by_strips(plan) > 0, how == ExchangeBy::kStrips);
            seen.insert(digests_by({.plan = plan, .clip_norm = 0.5}));
            ASSERT_EQ(seen.size(), 1U);
          }
      }
}

// One round, which is both first and last, and many rounds; exchanges without
// overlap; many steps.
TEST(StripByStrip, HasTheBitsOfRoundsWhateverTheirNumber) {
  std::set<StripDigests> seen;
  for (const ExchangeBy how : {ExchangeBy::kRounds, ExchangeBy::kStrips})
    for (const int64_t capacity : {30'000, 200'000, 10'000'000})
      for (const bool pipelined : {true, false}) {
        SCOPED_TRACE(cat(to_string(how), " ", capacity, pipelined));
        seen.insert(
            digests_by({.plan = plan_by(how, "tp=4", strips(8), capacity),
                        .gradients = GradientKind::kRandom,
                        .steps = 10,
                        .options = {.pipelined = pipelined}}));
        ASSERT_EQ(seen.size(), 1U);
      }
}

// Fused tensors, whose sections tp cuts separately, so that a rank has several
// pieces of a strip.
TEST(StripByStrip, HasTheBitsOfRoundsOfFusedTensors) {
  Model model = shared_model();
  model.tensors[2].sections = {{"gate", {0, 268, 268, 1}, 1},
                               {"up", {268, 268, 268, 1}, 1}};
  std::set<StripDigests> seen;
  for (const ExchangeBy how : {ExchangeBy::kRounds, ExchangeBy::kStrips})
    for (const std::string mesh : {"tp=2", "tp=4"}) {
      SCOPED_TRACE(cat(to_string(how), " ", mesh));
      seen.insert(
          digests_by({.plan = plan_by(how, mesh, strips(8), 60'000, model)}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

// Homes of places: data-parallel ranks that share the slices of tensors.
TEST(StripByStrip, HasTheBitsOfRoundsInHomesOfPlaces) {
  std::set<StripDigests> seen;
  for (const ExchangeBy how : {ExchangeBy::kRounds, ExchangeBy::kStrips}) {
    PlanWish wish{.mesh = "dp=4,tp=2", .options = strips(8), .zero = "hier:2"};
    wish.capacity_bytes = 60'000;
    wish.exchange = how;
    seen.insert(digests_by({.plan = small_plan(shared_model(), wish)}));
    ASSERT_EQ(seen.size(), 1U);
  }
}

// With teams: rounds that contain a shared matrix are not exchanged by strips.
TEST(StripByStrip, HasTheBitsOfRoundsBesideTeams) {
  std::set<StripDigests> seen;
  for (const ExchangeBy how : {ExchangeBy::kRounds, ExchangeBy::kStrips})
    for (const size_t shared : {1, 3}) {
      const Plan plan =
          share_matrices(plan_by(how, "tp=4", strips(8)),
                         [&](size_t m) { return m == shared ? 4 : 1; });
      seen.insert(digests_by({.plan = plan}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

// Norms so far from 1 that strips are loaded and summed again.
TEST(StripByStrip, HasTheBitsOfRoundsOfTinyAndHugeMatrices) {
  for (const float factor : {0.0F, 0x1p-100F, 0x1p90F}) {
    std::set<StripDigests> seen;
    for (const ExchangeBy how : {ExchangeBy::kRounds, ExchangeBy::kStrips}) {
      SCOPED_TRACE(cat(factor, " ", to_string(how)));
      Trial trial{.plan = plan_by(how, "tp=4", strips(4))};
      trial.poison = [&](Runtime&, int64_t, int32_t, std::span<float> all) {
        for (float& x : all) x *= factor;
      };
      seen.insert(digests_by(trial));
      ASSERT_EQ(seen.size(), 1U);
    }
  }
}

TEST(StripByStrip, SendsAndReservesWhatThePlanSays) {
  for (const std::string mesh : {"tp=8", "dp=2,tp=4"})
    for (const int64_t capacity : {60'000, 10'000'000}) {
      SCOPED_TRACE(cat(mesh, " ", capacity));
      const Plan plan = plan_by(ExchangeBy::kStrips, mesh, strips(8), capacity);
      const Plan rounds =
          plan_by(ExchangeBy::kRounds, mesh, strips(8), capacity);
      const std::vector<RankCost> predicted = predict(plan);
      const std::vector<RankCost> by_rounds = predict(rounds);
      constexpr int kSteps = 2;
      const TrialResult result = run_trial({.plan = plan, .steps = kSteps});
      for (size_t r = 0; r < predicted.size(); ++r) {
        SCOPED_TRACE(r);
        for (const auto& [collective, sent] :
             {std::pair{Collective::kGather, result.sent[r].gather},
              {Collective::kScatter, result.sent[r].scatter}}) {
          const auto c = static_cast<size_t>(collective);
          EXPECT_EQ(sent, kSteps * predicted[r].wire[c].sent());
          EXPECT_EQ(predicted[r].wire[c].sent(), by_rounds[r].wire[c].sent());
        }
        EXPECT_EQ(result.memory[r].buffers, predicted[r].memory.buffers);
        EXPECT_EQ(predicted[r].memory.buffers, by_rounds[r].memory.buffers);
      }
    }
}

TEST(StripByStrip, RanksEndTogetherWhenOneFails) {
  expect_ranks_end_together(plan_by(ExchangeBy::kStrips, "tp=4", strips(8)),
                            15);
}

// An engine that does not support strips is rejected before any step.
TEST(StripByStrip, NeedsAnEngineThatCan) {
  const Plan plan = plan_by(ExchangeBy::kStrips, "tp=2", strips(2));
  LateDevice device;
  EXPECT_THAT(
      [&] {
        run_ranks(2, [&](Communicator& world) {
          LateEngine engine(device);
          Runtime runtime(plan, world, engine, {});
        });
      },
      testing::ThrowsMessage<UsageError>(
          HasSubstr("plan with exchange=rounds")));
}

}  // namespace
}  // namespace canzona::strip_exchange_runtime_test

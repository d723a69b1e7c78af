// What one rank stores and moves, derived from a plan, against hand-counted
// examples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/plan/schedule/rounds.h"
#include "canzona/runtime/testing/test_plans.h"

namespace canzona::runtime::runtime_layout_test {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(Coordinates, CountsTpFirstThenHomesThenStages) {
  const Mesh mesh = parse_mesh("dp=2,cp=3,ep=2,tp=2,pp=2");
  for (int32_t rank = 0; rank < mesh.world(); ++rank) {
    const Coordinates at = coordinates_of(mesh, rank);
    EXPECT_EQ(mesh.rank(at.stage, at.home, at.t), rank);
    EXPECT_EQ(mesh.home_of_expert(at.expert_home, at.ep), at.home);
  }
}

// Every element of a tensor is on each tp plane once, or once over all planes.
TEST(LogicalRuns, CoverATensorOnce) {
  for (const Tensor& tensor : toy_model().tensors)
    for (const int32_t tp : {1, 2, 4}) {
      SCOPED_TRACE(cat(tensor.name, " tp=", tp));
      if (tensor.cut == Cut::kNone) continue;
      std::vector<int> seen(static_cast<size_t>(tensor.elements()), 0);
      for (int32_t t = 0; t < tp; ++t) {
        int64_t in_shard = 0;
        for (const ExtentCopy& run : logical_runs(tensor, tp, t)) {
          EXPECT_EQ(run.from, in_shard);
          in_shard += run.count;
          for (int64_t i = 0; i < run.count; ++i)
            ++seen[static_cast<size_t>(run.to + i)];
        }
        EXPECT_EQ(in_shard, tensor.elements() / tp);
      }
      EXPECT_THAT(seen, Each(1));
    }
}

// Rows 8 to 15 of a column-cut 16 x 24 matrix on the second of two tp ranks.
TEST(LogicalRuns, OfAColumnCutAreItsRows) {
  const Tensor tensor = matrix_tensor("w", 2, 6, Cut::kColumns);
  const auto runs = logical_runs(tensor, 2, 1);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].to, 3);
  EXPECT_EQ(runs[1].to, 9);
  EXPECT_EQ(runs[1].from, 3);
}

struct Laid {
  Plan plan;
  Coordinates at;
  RankLayout layout;
  Kept kept;
  std::vector<Round> rounds;
};
Laid laid_out(const Model& model, const PlanWish& wish, int32_t rank) {
  Laid laid;
  laid.plan = small_plan(model, wish);
  laid.at = coordinates_of(laid.plan.mesh, rank);
  laid.layout = lay_out_rank(laid.plan.parts[0], laid.at);
  laid.kept = kept_by(laid.plan.parts[0], laid.at, laid.layout);
  laid.rounds = make_rounds(laid.plan.parts[0], laid.at, laid.kept, 1);
  return laid;
}

// Two matrices of 8 and 6 elements: the shorter run is padded to the longer.
TEST(RankLayout, PadsEveryRunToTheLongest) {
  const Model model =
      model_of({matrix_tensor("a", 2, 4), matrix_tensor("b", 2, 3)});
  const Laid laid =
      laid_out(model, {.mesh = "dp=2", .strategy = "megatron"}, 1);
  ASSERT_EQ(laid.layout.gradients.buckets.size(), 1U);
  const Region& region = laid.layout.gradients.buckets[0].matrices;
  EXPECT_EQ(region.all.count, 16);
  EXPECT_EQ(region.own, (Extent{8, 8}));
  std::vector<int64_t> firsts;
  for (const auto& place : laid.layout.gradients.tensors)
    firsts.push_back(place.first);
  std::sort(firsts.begin(), firsts.end());
  EXPECT_THAT(firsts, ElementsAre(0, 8));
}

// AdamW's elements are cut anywhere, inside tensors too.
TEST(Kept, ElementsAreTheRanksOwnRun) {
  const Model model = model_of({adamw_tensor("a", 5), adamw_tensor("b", 4)});
  int64_t kept = 0;
  for (int32_t rank = 0; rank < 3; ++rank) {
    const Laid laid = laid_out(model, {.mesh = "dp=3", .rule = "adamw"}, rank);
    kept += laid.kept.num_elements;
    for (const KeptElements& elements : laid.kept.elements)
      EXPECT_EQ(
          elements.parameter,
          laid.layout.gradients.tensors[static_cast<size_t>(elements.tensor)]
                  .first +
              elements.in_shard.first);
  }
  EXPECT_EQ(kept, 9);
}

// One rank of a home expects what another sends it in a round, and blocks of a
// slot do not overlap.
TEST(Rounds, SendWhatTheOtherExpects) {
  for (const std::string& strategy : strategy_names())
    for (const std::string split : {"none", "head,gate-up"}) {
      SCOPED_TRACE(cat(strategy, " ", split));
      std::vector<Laid> ranks;
      for (int32_t t = 0; t < 4; ++t)
        ranks.push_back(laid_out(
            toy_model(), {.mesh = "tp=4", .strategy = strategy, .split = split},
            t));
      for (size_t k = 0; k < ranks[0].rounds.size(); ++k)
        for (size_t a = 0; a < 4; ++a)
          for (size_t b = 0; b < 4; ++b) {
            const Round &from = ranks[a].rounds[k], &to = ranks[b].rounds[k];
            EXPECT_EQ(from.gather[0].send_bytes[b],
                      to.gather[0].receive_bytes[a]);
            EXPECT_EQ(from.scatter[0].empty, to.scatter[0].empty);
            if (from.scatter[0].empty) continue;
            EXPECT_EQ(from.scatter[0].send_bytes[b],
                      to.scatter[0].receive_bytes[a]);
          }
    }
}

TEST(Rounds, AreNoneWithoutTensorParallelism) {
  EXPECT_TRUE(laid_out(toy_model(), {.mesh = "dp=2"}, 0).rounds.empty());
}

}  // namespace
}  // namespace canzona::runtime::runtime_layout_test

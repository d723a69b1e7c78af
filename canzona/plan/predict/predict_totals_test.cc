// These tests count what all ranks together send and keep, from the sizes of
// tensors alone.
#include <gmock/gmock.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::predict_totals_test {
namespace {

// ZeRO-1: in every plane each element crosses to its home from dp - 1 ranks,
// and back to them as a weight.
TEST(PredictedTraffic, IsThatOfZero1) {
  const Model model = toy_model(4);
  for (const char* strategy : {"start_offset", "contiguous", "balanced"}) {
    for (int32_t dp : {1, 2, 4, 7, 8}) {
      const Plan plan =
          plan_of(model, cat("dp=", dp, ",tp=2"), with_strategy(strategy));
      int64_t elements = 0;  // of one plane
      for (const Tensor& t : model.tensors) {
        elements += t.elements() / (t.cut == Cut::kNone ? 1 : 2);
      }
      int64_t reduced = 0, gathered = 0;
      for (const RankCost& rank : predict(plan)) {
        reduced +=
            rank.wire[static_cast<size_t>(Collective::kReduceScatter)].sent();
        gathered +=
            rank.wire[static_cast<size_t>(Collective::kAllGather)].sent();
      }
      EXPECT_EQ(reduced, 2 * (dp - 1) * elements * 4) << strategy;
      EXPECT_EQ(gathered, 2 * (dp - 1) * elements * 2) << strategy;
    }
  }
}

// Without tp the step itself moves nothing, but for layerwise's weights.
TEST(PredictedTraffic, OneRankPerHomeExchangesNothing) {
  for (const std::string& strategy : strategy_names()) {
    for (int32_t dp : {1, 2, 4, 7, 8}) {
      for (const RankCost& rank : predict(
               plan_of(toy_model(), cat("dp=", dp), with_strategy(strategy)))) {
        for (Collective c : {Collective::kGather, Collective::kScatter}) {
          EXPECT_EQ(rank.wire[static_cast<size_t>(c)].sent(), 0) << strategy;
          EXPECT_EQ(rank.wire[static_cast<size_t>(c)].received(), 0);
        }
        EXPECT_EQ(rank.memory.buffers, Bytes(0)) << strategy;
      }
    }
  }
}

// A rank sends of every bucket all but its own run.
TEST(PredictedTraffic, ReduceScatterSendsAllButTheOwnRun) {
  PlanOptions options;
  options.bucket_elements = 700;
  const Plan plan = plan_of(toy_model(4), "dp=4,tp=2", options);
  const std::vector<RankCost> ranks = predict(plan);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const size_t home = r / 2;
    int64_t expected = 0;
    for (const Bucket& b : plan.parts[0].buckets) {
      for (const auto* cuts : {&b.cuts, &b.adamw_cuts}) {
        expected += cuts->back() - ((*cuts)[home + 1] - (*cuts)[home]);
      }
    }
    EXPECT_EQ(ranks[r].wire[0].sent(), expected * 4);
  }
}

// All states of all tensors, 1/tp of those that tp cuts.
TEST(PredictedMemory, ReplicatedKeepsAllStates) {
  const Model model = toy_moe(2, 4);
  const Plan plan = plan_of(model, "dp=3,tp=2", with_strategy("replicated"));
  int64_t states = 0, elements = 0;
  for (const Tensor& t : model.tensors) {
    const int64_t shard = t.elements() / (t.cut == Cut::kNone ? 1 : 2);
    elements += shard;
    states += shard * (t.matrix_rule ? 4 : 8);
  }
  for (const RankCost& rank : predict(plan)) {
    EXPECT_EQ(rank.memory.states, Bytes(states));
    EXPECT_EQ(rank.memory.master, Bytes(elements * 4));
    EXPECT_EQ(rank.memory.parameters, Bytes(elements * 2));
    EXPECT_EQ(rank.memory.gradients, Bytes(elements * 4));
  }
}

// Every state of the model is somewhere, once per plane.
TEST(PredictedMemory, OwnersKeepEveryStateOnce) {
  const Model model = toy_model(4);
  int64_t states = 0, planes = 0;
  for (const Tensor& t : model.tensors) {
    const int64_t copies = t.cut == Cut::kNone ? 2 : 1;
    planes += copies * t.elements() * 4;
    states += copies * t.elements() * (t.matrix_rule ? 4 : 8);
  }
  for (const char* strategy :
       {"layerwise", "start_offset", "contiguous", "megatron", "balanced"}) {
    for (int32_t dp : {1, 2, 4, 7, 8}) {
      Bytes kept, master;
      for (const RankCost& rank : predict(plan_of(
               model, cat("dp=", dp, ",tp=2"), with_strategy(strategy)))) {
        kept += rank.memory.states;
        master += rank.memory.master;
      }
      EXPECT_EQ(kept, Bytes(states)) << strategy << ", dp " << dp;
      EXPECT_EQ(master, Bytes(planes)) << strategy << ", dp " << dp;
    }
  }
}

}  // namespace
}  // namespace canzona::plan::predict_totals_test

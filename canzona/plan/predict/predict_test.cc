#include "canzona/plan/predict/predict.h"

#include <gmock/gmock.h>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::predict_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using Counts = std::vector<int64_t>;

// Two tensors on dp = 2, tp = 2: a is 8x4, cut by rows (16 elements per plane),
// b is 4x4, cut by columns (8). Home 0 keeps a, owned by its tp rank 1; home 1
// keeps b, owned by its tp rank 0. Ranks are (0,0), (0,1), (1,0), (1,1).
Plan tiny_plan(const std::string& strategy, Traffic traffic) {
  Plan plan;
  plan.model = model_of({matrix_tensor("a", 8, 4, Cut::kRows),
                         matrix_tensor("b", 4, 4, Cut::kColumns)});
  plan.mesh = parse_mesh("dp=2,tp=2");
  plan.rule = "muon";
  plan.options.strategy = strategy;
  plan.traffic = traffic;
  plan.cost_basis.seconds_per_tick = 1e-6;
  plan.matrices = split_into_matrices(plan.model, {});
  plan.costs = {{Ticks(1664), Ticks(0)}, {Ticks(1280), Ticks(0)}};
  add_parts(plan);
  plan.parts[0].buffers = {{0, -1, 2}};
  plan.parts[0].buckets = {{0, {0, 1}, 2, {}, {}}};
  plan.parts[0].home = {0, 1};
  plan.parts[0].micro_group = {0, 0};
  return plan;
}

// Returns the plan of one strategy. If every tp rank repeats an update there is
// no owner, and every matrix is a round of its own.
Plan tiny_plan(const std::string& strategy) {
  const bool repeats = strategy == "replicated" || strategy == "layerwise";
  Plan plan =
      tiny_plan(strategy, strategy == "replicated"  ? Traffic::kAllReduce
                          : strategy == "layerwise" ? Traffic::kBroadcast
                          : strategy == "megatron"  ? Traffic::kPadded
                                                    : Traffic::kReduceScatter);
  for (int32_t owner : {1, 0}) {
    if (repeats) {
      plan.parts[0].owners.push_back(std::span<const int32_t>());
    } else {
      plan.parts[0].owners.push_back(owner);
    }
  }
  if (!repeats) plan.parts[0].buckets[0].cuts = {0, 16, 24};
  if (strategy != "replicated") plan.parts[0].buckets[0].adamw_cuts = {0, 0, 0};
  if (strategy == "replicated") {
    plan.parts[0].home = {kEveryHome, kEveryHome};
    plan.parts[0].micro_group = {0, 1};
  }
  derive(plan);
  return plan;
}

class Predicted {
 public:
  explicit Predicted(const Plan& plan) : ranks_(predict(passed_on(plan))) {}

  Counts sent(Collective c) const {
    Counts out;
    for (const RankCost& rank : ranks_) {
      out.push_back(rank.wire[static_cast<size_t>(c)].sent());
    }
    return out;
  }
  Counts received(Collective c) const {
    Counts out;
    for (const RankCost& rank : ranks_) {
      out.push_back(rank.wire[static_cast<size_t>(c)].received());
    }
    return out;
  }
  Counts memory(Bytes RankMemory::*kind) const {
    Counts out;
    for (const RankCost& rank : ranks_) {
      out.push_back((rank.memory.*kind).value());
    }
    return out;
  }
  const RankCost& operator[](size_t rank) const { return ranks_[rank]; }

 private:
  std::vector<RankCost> ranks_;
};

// Every rank holds all 24 elements of its plane in bf16, their gradients in
// fp32; master weights and momentum only of its home's tensors. The largest
// round takes a's 32 elements, in four slots: an owner's shard is among them,
// where all ranks repeat an update it lies beside.
void expect_memory_of_homes(const Predicted& p, int64_t beside = 0) {
  EXPECT_THAT(p.memory(&RankMemory::master), ElementsAre(64, 64, 32, 32));
  EXPECT_THAT(p.memory(&RankMemory::states), ElementsAre(64, 64, 32, 32));
  EXPECT_THAT(p.memory(&RankMemory::buffers), Each(4 * (32 + beside) * 4));
}

// Shards to the owner, updates back.
void expect_exchange_with_owners(const Predicted& p) {
  EXPECT_THAT(p.sent(Collective::kGather), ElementsAre(64, 0, 0, 32));
  EXPECT_THAT(p.received(Collective::kGather), ElementsAre(0, 64, 32, 0));
  EXPECT_THAT(p.sent(Collective::kScatter), ElementsAre(0, 64, 32, 0));
  EXPECT_THAT(p.received(Collective::kScatter), ElementsAre(64, 0, 0, 32));
}

class ReduceScatterStrategy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ReduceScatterStrategy,
                         ::testing::Values("start_offset", "contiguous",
                                           "balanced"));

TEST_P(ReduceScatterStrategy, MovesEveryRunOnce) {
  const Predicted p(tiny_plan(GetParam()));
  EXPECT_THAT(p.memory(&RankMemory::parameters), Each(24 * 2));
  EXPECT_THAT(p.memory(&RankMemory::gradients), Each(24 * 4));
  expect_memory_of_homes(p);
  expect_exchange_with_owners(p);
  EXPECT_THAT(p.sent(Collective::kReduceScatter), ElementsAre(32, 32, 64, 64));
  EXPECT_THAT(p.received(Collective::kReduceScatter),
              ElementsAre(64, 64, 32, 32));
  EXPECT_THAT(p.sent(Collective::kAllGather), ElementsAre(32, 32, 16, 16));
  EXPECT_THAT(p.received(Collective::kAllGather), ElementsAre(16, 16, 32, 32));
  EXPECT_THAT(p.sent(Collective::kAllReduce), Each(0));
  EXPECT_THAT(p.sent(Collective::kBroadcast), Each(0));
}

// Both runs are padded to 16 elements.
TEST(Predict, MegatronPadsEveryRun) {
  const Predicted p(tiny_plan("megatron"));
  EXPECT_THAT(p.memory(&RankMemory::parameters), Each(32 * 2));
  EXPECT_THAT(p.memory(&RankMemory::gradients), Each(32 * 4));
  expect_memory_of_homes(p);
  expect_exchange_with_owners(p);
  EXPECT_THAT(p.sent(Collective::kReduceScatter), Each(64));
  EXPECT_THAT(p.received(Collective::kReduceScatter), Each(64));
  EXPECT_THAT(p.sent(Collective::kAllGather), Each(32));
  EXPECT_THAT(p.received(Collective::kAllGather), Each(32));
}

// All-reduce is a reduce-scatter and an all-gather of even halves, in fp32:
// 12 elements each way. Every rank takes the other's shard of both tensors.
TEST(Predict, ReplicatedKeepsEverythingEverywhere) {
  const Predicted p(tiny_plan("replicated"));
  EXPECT_THAT(p.memory(&RankMemory::parameters), Each(24 * 2));
  EXPECT_THAT(p.memory(&RankMemory::gradients), Each(24 * 4));
  EXPECT_THAT(p.memory(&RankMemory::master), Each(24 * 4));
  EXPECT_THAT(p.memory(&RankMemory::states), Each(24 * 4));
  EXPECT_THAT(p.memory(&RankMemory::buffers), Each(4 * (32 + 16) * 4));
  EXPECT_THAT(p.sent(Collective::kAllReduce), Each(2 * 12 * 4));
  EXPECT_THAT(p.received(Collective::kAllReduce), Each(2 * 12 * 4));
  EXPECT_THAT(p.sent(Collective::kGather), Each(24 * 4));
  EXPECT_THAT(p.received(Collective::kGather), Each(24 * 4));
  for (Collective c : {Collective::kScatter, Collective::kReduceScatter,
                       Collective::kAllGather, Collective::kBroadcast}) {
    EXPECT_THAT(p.sent(c), Each(0)) << to_string(c);
    EXPECT_THAT(p.received(c), Each(0)) << to_string(c);
  }
}

// The two tp ranks of a home exchange shards and repeat its updates, then send
// bf16 weights to the other home.
TEST(Predict, LayerwiseBroadcastsWeights) {
  const Predicted p(tiny_plan("layerwise"));
  EXPECT_THAT(p.memory(&RankMemory::parameters), Each(24 * 2));
  EXPECT_THAT(p.memory(&RankMemory::gradients), Each(24 * 4));
  expect_memory_of_homes(p, 16);
  EXPECT_THAT(p.sent(Collective::kAllReduce), Each(96));
  EXPECT_THAT(p.sent(Collective::kGather), ElementsAre(64, 64, 32, 32));
  EXPECT_THAT(p.received(Collective::kGather), ElementsAre(64, 64, 32, 32));
  EXPECT_THAT(p.sent(Collective::kScatter), Each(0));
  EXPECT_THAT(p.sent(Collective::kBroadcast), ElementsAre(32, 32, 16, 16));
  EXPECT_THAT(p.received(Collective::kBroadcast), ElementsAre(16, 16, 32, 32));
  EXPECT_THAT(p.sent(Collective::kAllGather), Each(0));
}

TEST(Predict, LoadsAreThoseOfOwners) {
  const Predicted p(tiny_plan("balanced"));
  EXPECT_EQ(p[0].every_step, Ticks(0));
  EXPECT_EQ(p[1].every_step, Ticks(1664));
  EXPECT_EQ(p[2].every_step, Ticks(1280));
  EXPECT_EQ(p[3].every_step, Ticks(0));
  EXPECT_EQ(p[1].num_matrices, 1);
  EXPECT_EQ(p[3].num_matrices, 0);
  EXPECT_EQ(p[0].elements, 16);
  EXPECT_EQ(p[3].elements, 8);
  const Predicted all(tiny_plan("replicated"));
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(all[r].every_step, Ticks(2944));
    EXPECT_EQ(all[r].num_matrices, 2);
    EXPECT_EQ(all[r].elements, 24);
  }
}

// fp32 parameters are their own master weights.
TEST(Predict, Fp32ParametersHaveNoMasterCopy) {
  Plan plan = tiny_plan("balanced");
  plan.options.parameters = DType::kFp32;
  const Predicted p(plan);
  EXPECT_THAT(p.memory(&RankMemory::parameters), Each(24 * 4));
  EXPECT_THAT(p.memory(&RankMemory::master), Each(0));
  EXPECT_THAT(p.sent(Collective::kAllGather), ElementsAre(64, 64, 32, 32));
}

// 10 elements of AdamW, 7 of them on home 0, whatever their tensor.
TEST(Predict, AdamWPiecesLieWhereTheyAreCut) {
  Plan plan = tiny_plan("balanced");
  const Tensor norm = adamw_tensor("norm", 10);
  plan.model.tensors.push_back(norm);
  plan.parts[0].model.tensors.push_back(norm);
  plan.parts[0].home.push_back(kEveryHome);
  plan.parts[0].buckets[0].tensors.push_back(2);
  plan.parts[0].buckets[0].adamw_cuts = {0, 7, 10};
  derive(plan);
  const Predicted p(plan);
  EXPECT_THAT(p.memory(&RankMemory::parameters), Each(34 * 2));
  EXPECT_THAT(p.memory(&RankMemory::gradients), Each(34 * 4));
  EXPECT_THAT(p.memory(&RankMemory::master),
              ElementsAre(64 + 28, 64 + 28, 32 + 12, 32 + 12));
  EXPECT_THAT(p.memory(&RankMemory::states),
              ElementsAre(64 + 56, 64 + 56, 32 + 24, 32 + 24));
  EXPECT_THAT(p.sent(Collective::kReduceScatter), ElementsAre(44, 44, 92, 92));
  EXPECT_EQ(p[0].memory.total(), Bytes(68 + 136 + 92 + 120 + 512));
}

// A tensor that tp does not cut is whole everywhere: nothing to gather, the
// whole update goes to the other rank.
TEST(Predict, UncutTensorsAreOnlyScattered) {
  Plan plan = tiny_plan("balanced");
  plan.model.tensors[1].cut = Cut::kNone;
  plan.parts[0].buckets[0].cuts = {0, 16, 32};
  const Predicted p(plan);
  EXPECT_THAT(p.sent(Collective::kGather), ElementsAre(64, 0, 0, 0));
  EXPECT_THAT(p.sent(Collective::kScatter), ElementsAre(0, 64, 64, 0));
  EXPECT_THAT(p.memory(&RankMemory::states), ElementsAre(64, 64, 64, 64));
}

// SOAP keeps two moments and, per side, a factor, its basis and a count of
// failed refreshes at the owner.
TEST(Predict, OwnersKeepTheirStates) {
  Plan plan = tiny_plan("balanced");
  plan.rule = "soap";
  derive(plan);
  const Predicted p(plan);
  EXPECT_THAT(p.memory(&RankMemory::states),
              ElementsAre(0, (2 * 32 + 2 * 64 + 2 * 16 + 2) * 4,
                          (2 * 16 + 4 * 16 + 2) * 4, 0));
  EXPECT_THAT(p.memory(&RankMemory::master), ElementsAre(64, 64, 32, 32));
}

// Home 0, one round: 64 bytes at 64 B/s, an overhead of 0.1 s and a latency of
// 1 s in, 1,664 ticks of a millisecond, 64 bytes out.
TEST(Predict, StepSecondsFollowAMatrixToItsOwnerAndBack) {
  Plan plan = tiny_plan("balanced");
  plan.options.links = {64, 32, 1, false};
  plan.cost_basis.seconds_per_tick = 1e-3;
  const Predicted p(plan);
  EXPECT_DOUBLE_EQ(p[0].step_seconds, 2.1 + 1.664 + 2.1);
  EXPECT_DOUBLE_EQ(p[1].step_seconds, p[0].step_seconds);
  EXPECT_DOUBLE_EQ(p[2].step_seconds, 1.6 + 1.28 + 1.6);
  EXPECT_DOUBLE_EQ(p[1].transform_seconds_mean, 1.664);
  EXPECT_DOUBLE_EQ(p[0].transform_seconds_worst, 0);
  EXPECT_DOUBLE_EQ(p[3].step_seconds_worst, p[3].step_seconds_mean);
}

// The same with the tp ranks on two nodes: half the bandwidth.
TEST(Predict, StepSecondsKnowTheLink) {
  Plan plan = tiny_plan("balanced");
  plan.options.links = {64, 32, 1, false};
  plan.options.ranks_per_node = 1;
  plan.cost_basis.seconds_per_tick = 1e-3;
  const Predicted p(plan);
  EXPECT_DOUBLE_EQ(p[0].step_seconds, 3.1 + 1.664 + 3.1);
}

// Both matrices on home 0 in two rounds: a belongs to rank 1, b to rank 0. Of a
// 2.1 s each way, of b 1.6. The gather of b has come at 3.7.
double two_rounds(int64_t work_a, int64_t work_b) {
  Plan plan = tiny_plan("balanced");
  plan.options.links = {64, 32, 1, false};
  plan.costs = {{Ticks(work_a), Ticks(0)}, {Ticks(work_b), Ticks(0)}};
  plan.cost_basis.seconds_per_tick = 1;
  plan.parts[0].home = {0, 0};
  plan.parts[0].buckets[0].cuts = {0, 24, 24};
  plan.parts[0].micro_group = {0, 1};
  derive(plan);
  return Predicted(plan)[0].step_seconds;
}

TEST(Predict, RoundsArePipelined) {
  // b does not wait for a's transform, which is on another rank.
  EXPECT_DOUBLE_EQ(two_rounds(3, 4), 3.7 + 4 + 1.6);
  EXPECT_DOUBLE_EQ(two_rounds(1, 4), 3.7 + 4 + 1.6);
  // b's transform ends at 4.7; its scatter waits for a's, which ends at 7.2.
  EXPECT_DOUBLE_EQ(two_rounds(3, 1), 2.1 + 3 + 2.1 + 1.6);
}

// 32 bytes out and 16 in at 16 B/s are not hidden.
TEST(Predict, BroadcastsTakeTimeInTheStep) {
  Plan plan = tiny_plan("layerwise");
  plan.options.links = {16, 16, 0, false};
  plan.cost_basis.seconds_per_tick = 0.001;
  const Predicted p(plan);
  EXPECT_DOUBLE_EQ(p[0].step_seconds, 64.0 / 16 + 1.664 + 32.0 / 16);
}

TEST(Predict, CollectivesHaveNames) {
  EXPECT_EQ(to_string(Collective::kReduceScatter), "reduce-scatter");
  EXPECT_EQ(to_string(Collective::kBroadcast), "broadcast");
}

}  // namespace
}  // namespace canzona::plan::predict_test

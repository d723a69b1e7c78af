#include "canzona/plan/predict/summary.h"

#include <gtest/gtest.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::metrics_test {
namespace {

// Three tensors on dp = 2, tp = 2:
//
//          whole  cut      shard  elements  20·max·min²  cost    home  owner
//   b      4x4    columns  4x2    8         320          1280    0     0
//   c      4x8    none     4x8    32        2560         1664    0     1
//   a      8x4    rows     4x4    16        1280         1664    1     0
//
// Home 0 has 40 elements, 2,880 shard flops and a cost of 2,944; home 1 has 16,
// 1,280 and 1,664.
Plan three_tensors() {
  Plan plan;
  plan.model = model_of({matrix_tensor("a", 8, 4, Cut::kRows),
                         matrix_tensor("b", 4, 4, Cut::kColumns),
                         matrix_tensor("c", 4, 8)});
  plan.mesh = parse_mesh("dp=2,tp=2");
  plan.rule = "muon";
  plan.options.alpha = 1;
  plan.options.weight = Weight::kCost;
  plan.matrices = split_into_matrices(plan.model, {});
  plan.costs = {{Ticks(1664), Ticks(0)},
                {Ticks(1280), Ticks(0)},
                {Ticks(1664), Ticks(0)}};
  add_parts(plan);
  plan.parts[0].buffers = {{0, -1, 2}};
  plan.parts[0].buckets = {{0, {1, 2, 0}, 3, {0, 40, 56}, {0, 0, 0}}};
  plan.parts[0].home = {1, 0, 0};
  for (int32_t owner : {0, 0, 1}) plan.parts[0].owners.push_back(owner);
  plan.parts[0].micro_group = {0, 0, 0};
  derive(plan);
  summarize(plan);
  return plan;
}

TEST(Balance, OfThreeTensorsOverHomes) {
  const Balance balance = measure_balance(three_tensors());
  EXPECT_DOUBLE_EQ(balance.dp.memory_max_over_mean, 40.0 / 28);
  EXPECT_DOUBLE_EQ(balance.dp.shard_flops_max_over_mean, 2880.0 / 2080);
  EXPECT_DOUBLE_EQ(balance.dp.cost_max_over_mean, 2944.0 / 2304);
  EXPECT_DOUBLE_EQ(balance.bucket_bytes_max_over_even, 40.0 / 28);
  EXPECT_DOUBLE_EQ(balance.j_dp, 12);
  EXPECT_DOUBLE_EQ(balance.j_comm, 24);
}

// Inside home 0: b on one rank, c on the other. In home 1 one rank has all.
TEST(Balance, OfThreeTensorsOverTensorParallelRanks) {
  const Balance balance = measure_balance(three_tensors());
  EXPECT_DOUBLE_EQ(balance.tp.memory_max_over_mean, 32.0 / 20);
  EXPECT_DOUBLE_EQ(balance.tp.shard_flops_max_over_mean, 2560.0 / 1440);
  EXPECT_DOUBLE_EQ(balance.tp.cost_max_over_mean, 1664.0 / 1472);
  EXPECT_DOUBLE_EQ(balance.tp_worst.memory_max_over_mean, 2);
  EXPECT_DOUBLE_EQ(balance.tp_worst.shard_flops_max_over_mean, 2);
  EXPECT_DOUBLE_EQ(balance.tp_worst.cost_max_over_mean, 2);
}

// Four ranks share 4,608 ticks; the largest matrix alone has 1,664.
TEST(Balance, OfThreeTensorsOverAllRanks) {
  const Balance balance = measure_balance(three_tensors());
  EXPECT_DOUBLE_EQ(balance.makespan_over_mean, 1664.0 / 1152);
  EXPECT_DOUBLE_EQ(balance.bound_over_mean, 1664.0 / 1152);
  EXPECT_DOUBLE_EQ(balance.makespan_over_bound, 1);
  EXPECT_EQ(balance.idle_ranks, 1);
}

// b and a in the first bucket (8 and 16, even 12), c alone in the second (32
// and 0, even 16): 4 + 4 + 16 + 16.
TEST(Balance, AddsUpBuckets) {
  Plan plan = three_tensors();
  plan.parts[0].buckets = {{0, {1, 0}, 2, {0, 8, 24}, {0, 0, 0}},
                           {0, {2}, 1, {0, 32, 32}, {0, 0, 0}}};
  derive(plan);
  const Balance balance = measure_balance(plan);
  EXPECT_DOUBLE_EQ(balance.j_comm, 40);
  EXPECT_DOUBLE_EQ(balance.bucket_bytes_max_over_even, 2);
  EXPECT_DOUBLE_EQ(balance.j_dp, 12);
}

// A refresh counts once per period, the rest in every step.
TEST(Balance, CountsCostOverAPeriod) {
  Plan plan = three_tensors();
  plan.rule = "soap";
  plan.rule_options = {{"precondition_frequency", "10"}};
  plan.costs = {{Ticks(1), Ticks(30)},   // 40 on home 1
                {Ticks(2), Ticks(0)},    // 20 on home 0
                {Ticks(0), Ticks(60)}};  // 60 on home 0
  const Balance balance = measure_balance(passed_on(plan));
  EXPECT_DOUBLE_EQ(balance.dp.cost_max_over_mean, 80.0 / 60);
  EXPECT_DOUBLE_EQ(balance.tp.cost_max_over_mean, 60.0 / 40);
}

// AdamW tensors have no owner and count nowhere.
TEST(Balance, LeavesAdamWOut) {
  Plan plan = three_tensors();
  plan.model.tensors.push_back(adamw_tensor("norm", 1000));
  plan.parts[0].home.push_back(kEveryHome);
  plan.parts[0].buckets[0].tensors.push_back(3);
  plan.parts[0].buckets[0].adamw_cuts = {0, 1000, 1000};
  plan.parts[0].tensors.push_back(3);
  derive_request(plan);
  const Balance balance = measure_balance(passed_on(plan));
  EXPECT_DOUBLE_EQ(balance.dp.memory_max_over_mean, 40.0 / 28);
  EXPECT_DOUBLE_EQ(balance.bucket_bytes_max_over_even, 40.0 / 28);
  EXPECT_DOUBLE_EQ(balance.j_comm, 24);
}

TEST(Balance, OfTheWorstStage) {
  Model model = squares({4, 4, 4, 8, 8, 8});
  for (size_t t = 0; t < 6; ++t) {
    model.tensors[t].layer = static_cast<int32_t>(t / 3);
  }
  model.num_layers = 2;
  // Three equal matrices on two homes: 2 against 1 in both stages; but all
  // three of the second stage on one home.
  Plan plan = plan_of(model, "dp=2,pp=2", with_strategy("layerwise"));
  plan.parts[0].home = {0, 0, 1, 1, 1, 1};
  const Balance balance = measure_balance(plan);
  EXPECT_DOUBLE_EQ(balance.dp.memory_max_over_mean, 2);
  EXPECT_DOUBLE_EQ(balance.j_dp, 96);  // 192 elements, mean 96
}

TEST(Balance, OfReplicatedUpdatesIsPerfectButForTheMakespan) {
  const Plan plan =
      plan_of(squares({4, 8, 12}), "dp=3,tp=1", with_strategy("replicated"));
  const Balance balance = measure_balance(plan);
  EXPECT_DOUBLE_EQ(balance.dp.cost_max_over_mean, 1);
  EXPECT_DOUBLE_EQ(balance.j_dp, 0);
  EXPECT_DOUBLE_EQ(balance.makespan_over_mean, 3);
  EXPECT_EQ(balance.idle_ranks, 0);
}

// The same homes give the same balance over dp, whether one tp rank computes a
// matrix or all of them do.
TEST(Balance, OverHomesDoesNotCountRepeatedUpdatesTwice) {
  const Plan owned = three_tensors();
  Plan repeated = owned;
  repeated.traffic = Traffic::kBroadcast;
  repeated.parts[0].owners = {};
  for (int m = 0; m < 3; ++m) {
    repeated.parts[0].owners.push_back(std::span<const int32_t>());
  }
  EXPECT_DOUBLE_EQ(measure_balance(repeated).dp.memory_max_over_mean,
                   measure_balance(owned).dp.memory_max_over_mean);
  EXPECT_DOUBLE_EQ(measure_balance(repeated).j_dp, measure_balance(owned).j_dp);
}

TEST(Balance, OfNothingIsOne) {
  const Balance balance = measure_balance(plan_of(Model{}, "dp=4"));
  EXPECT_DOUBLE_EQ(balance.dp.memory_max_over_mean, 1);
  EXPECT_DOUBLE_EQ(balance.makespan_over_mean, 1);
  EXPECT_DOUBLE_EQ(balance.makespan_over_bound, 1);
  EXPECT_DOUBLE_EQ(balance.j_comm, 0);
  EXPECT_EQ(balance.idle_ranks, 4);
}

}  // namespace
}  // namespace canzona::plan::metrics_test

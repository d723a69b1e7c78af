#include "canzona/sim/plan_iteration.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/sim/test_work.h"
#include "canzona/sim/workload.h"

namespace canzona::sim::plan_iteration_test {
namespace {

PlanOptions zero_options(ZeroSizes sizes, int32_t ranks_per_node = 4) {
  PlanOptions options;
  options.zero.sizes = sizes;
  options.ranks_per_node = ranks_per_node;
  options.parameters = DType::kFp32;
  options.links = {1e6, 1e5, 1e-6, false};
  return options;
}

Workload toy_workload(int64_t micro_batches = 1) {
  Workload workload;
  workload.compute = {.tokens = 64, .flops_per_second = 1e7};
  workload.num_micro_batches = micro_batches;
  return workload;
}

int64_t elements_of(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& t : model.tensors) sum += t.elements();
  return sum;
}

// Four nodes of four, 4 micro-batches, fp32: ZeRO-3 gathers 8 times and
// scatters 4 times 4N bytes, 12/16 of them over slow links: 36N. With groups
// inside nodes, 4N/4 bytes are reduced and published once, 3/4 of them over
// slow links: 1.5N.
TEST(PlanIteration, SlowBytesOfZero3AndOfGroupsInNodes) {
  const Model model = toy_model(2);
  const int64_t n = elements_of(model);
  const Plan zero3 =
      plan_of(model, "dp=16", zero_options({16, 16, 16}), {"adamw", {}});
  EXPECT_EQ(predict_iteration(zero3, toy_workload(4)).slow_bytes, 36 * n);
  const Plan hier =
      plan_of(model, "dp=16", zero_options({16, 4, 4}), {"adamw", {}});
  const int64_t slow = predict_iteration(hier, toy_workload(4)).slow_bytes;
  EXPECT_NEAR(static_cast<double>(slow), 1.5 * static_cast<double>(n),
              0.01 * static_cast<double>(n));
}

// With two levels: a quarter of that between nodes, four times as much inside,
// taking as long as both levels one after the other.
TEST(PlanIteration, ModulesThatSendOncePerNode) {
  const Model model = toy_model(2);
  PlanOptions options = zero_options({16, 16, 16});
  const Plan direct = plan_of(model, "dp=16", options, {"adamw", {}});
  options.zero.reach = Reach::kPerNode;
  const Plan plan = plan_of(model, "dp=16", options, {"adamw", {}});
  const Workload workload = toy_workload();
  const IterationWork before = plan_iteration(direct, workload, 0);
  const IterationWork work = plan_iteration(plan, workload, 0);
  const int64_t all = iteration_bytes(before).sent_inter;
  EXPECT_NEAR(static_cast<double>(iteration_bytes(work).sent_inter),
              0.25 * static_cast<double>(all), 0.01 * static_cast<double>(all));
  for (size_t m = 0; m < work.modules.size(); ++m) {
    const ModuleWork& module = work.modules[m];
    if (before.modules[m].gather.first.empty()) continue;
    EXPECT_EQ(module.gather.first.bytes.sent_intra, 0);
    EXPECT_EQ(module.gather.second.bytes.sent_inter, 0);
    EXPECT_EQ(module.scatter.first.bytes.sent_inter, 0);
    EXPECT_EQ(module.scatter.second.bytes.sent_intra, 0);
    EXPECT_EQ(module.gather.first.messages_inter,
              before.modules[m].gather.first.messages_inter / 4);
    EXPECT_EQ(module.gather.second.messages_intra,
              before.modules[m].gather.first.messages_intra * 4);
    EXPECT_EQ(module.gather.second.copied_bytes,
              before.modules[m].gather.first.copied_bytes);
    EXPECT_FALSE(module.gather.second.empty());
    EXPECT_FALSE(module.scatter.second.empty());
  }
  EXPECT_LT(simulate_iteration(work).seconds,
            simulate_iteration(before).seconds);
}

// The same for sums and publication in plain storage.
TEST(PlanIteration, PlainStorageThatSendsOncePerNode) {
  for (const std::string& strategy : strategy_names()) {
    SCOPED_TRACE(strategy);
    PlanOptions options = zero_options({16, 1, 1});
    options.strategy = strategy;
    const Plan direct = plan_of(toy_model(4), "dp=16", options);
    options.zero.reach = Reach::kPerNode;
    const Plan plan = plan_of(toy_model(4), "dp=16", options);
    const IterationWork before = plan_iteration(direct, toy_workload(), 0);
    const IterationWork work = plan_iteration(plan, toy_workload(), 0);
    for (const ModuleWork& module : work.modules) {
      EXPECT_EQ(module.reduce.first.bytes.sent_inter, 0);
      EXPECT_EQ(module.reduce.second.bytes.sent_intra, 0);
      EXPECT_EQ(module.publish.first.bytes.sent_intra, 0);
      EXPECT_EQ(module.publish.second.bytes.sent_inter, 0);
      EXPECT_EQ(module.reduce.first.empty(), module.reduce.second.empty());
    }
    EXPECT_LT(simulate_iteration(work).seconds,
              simulate_iteration(before).seconds);
  }
}

// 1 GiB of gradients on every rank, nodes of 8, 350 GB/s inside and 45 GB/s to
// other nodes: all pairs, and in two legs, one after the other or, as an upper
// limit for any schedule, at the same time.
TEST(PlanIteration, SumsOfAGibibyteOnNodesOfEight) {
  struct Row {
    int32_t ranks;
    double slow_gib, direct_ms, legs_slow_gib, beside_ms, after_ms;
  };
  const Model model = model_of({adamw_tensor("w", int64_t{1} << 28, 0)});
  const auto reduce_of = [&](int32_t ranks, Reach reach) {
    PlanOptions options = zero_options({ranks, 1, 1}, 8);
    options.links = {350e9, 45e9, 0, false};
    options.zero.reach = reach;
    const Plan plan = plan_of(model, cat("dp=", ranks), options, {"adamw", {}});
    for (const ModuleWork& module :
         rank_transfers(plan, toy_workload(), ranks - 1).own)
      if (!module.reduce.empty()) return module;
    return ModuleWork{};
  };
  const auto ms = [](const Transfer& transfer) {
    return 1e3 * seconds_alone(transfer, {350e9, 45e9, 0, false}, 0);
  };
  const auto gib = [](int64_t bytes) {
    return static_cast<double>(bytes) / (1 << 30);
  };
  for (const Row& row :
       {Row{8, 0, 2.7, 0, 2.7, 2.7}, Row{32, 0.75, 17.9, 0.094, 2.7, 4.9},
        Row{256, 0.97, 23.1, 0.121, 2.9, 5.6}}) {
    SCOPED_TRACE(cat(row.ranks, " ranks"));
    const ModuleWork direct = reduce_of(row.ranks, Reach::kDirect);
    EXPECT_NEAR(gib(direct.reduce.first.bytes.sent_inter), row.slow_gib, 0.005);
    EXPECT_NEAR(ms(direct.reduce.first), row.direct_ms, 0.05);
    const ModuleWork legs = reduce_of(row.ranks, Reach::kAuto);
    EXPECT_NEAR(gib(legs.reduce.second.bytes.sent_inter), row.legs_slow_gib,
                0.0005);
    const double inside = ms(legs.reduce.first),
                 across = ms(legs.reduce.second);
    EXPECT_NEAR(std::max(inside, across), row.beside_ms, 0.05);
    EXPECT_NEAR(inside + across, row.after_ms, 0.05);
  }
}

// Compares with what predict() counts in a step, plus gathers and scatters.
void expect_bytes_of_plan(const Plan& plan, int64_t slack) {
  const Workload workload = toy_workload();
  const std::vector<RankCost> costs = predict(plan);
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    const RankCost& cost = costs[static_cast<size_t>(rank)];
    int64_t sent = 0;
    for (const ModuleWork& module : rank_transfers(plan, workload, rank).own)
      sent += module.reduce.bytes().sent() + module.publish.bytes().sent();
    for (Collective c :
         {Collective::kGather, Collective::kScatter, Collective::kBroadcast})
      sent += cost.wire[static_cast<size_t>(c)].sent();
    EXPECT_LE(sent, cost.bytes_sent()) << "rank " << rank;
    EXPECT_GE(sent, cost.bytes_sent() - slack) << "rank " << rank;
  }
}

TEST(PlanIteration, BytesAreThoseOfThePlan) {
  for (const ZeroSizes& sizes : all_zero_sizes(8)) {
    SCOPED_TRACE(to_string(sizes));
    expect_bytes_of_plan(plan_of(toy_model(2), "dp=8", zero_options(sizes)), 0);
  }
  expect_bytes_of_plan(plan_of(toy_model(2), "dp=2,tp=2,pp=2"), 0);
}

TEST(PlanIteration, BytesOfOtherStrategiesAndOfExperts) {
  for (const std::string& strategy : strategy_names()) {
    SCOPED_TRACE(strategy);
    expect_bytes_of_plan(plan_of(toy_model(2), "dp=4", with_strategy(strategy)),
                         0);
  }
  expect_bytes_of_plan(plan_of(toy_moe(2), "dp=2,ep=2"), 0);
}

TEST(PlanIteration, BytesOfPlainStorageOncePerNodeAreThoseOfThePlan) {
  for (const std::string& strategy : strategy_names()) {
    SCOPED_TRACE(strategy);
    PlanOptions options = with_strategy(strategy);
    options.ranks_per_node = 2;
    options.zero.reach = Reach::kPerNode;
    expect_bytes_of_plan(plan_of(toy_model(2), "dp=4", options), 0);
    options.ranks_per_node = 4;
    expect_bytes_of_plan(plan_of(toy_moe(2), "dp=4,ep=2", options), 0);
  }
}

TEST(PlanIteration, BytesOfExpertsOnTheirOwnRanksAreThoseOfThePlan) {
  for (const ZeroSizes& dense : all_zero_sizes(4))
    for (const ZeroSizes& experts : all_zero_sizes(2)) {
      PlanOptions options = zero_options(dense, 2);
      options.zero.experts = experts;
      const Plan plan = plan_of(toy_moe(2), "dp=2,ep=2", options);
      SCOPED_TRACE(cat(to_string(dense), " experts ", to_string(experts)));
      expect_bytes_of_plan(plan, 0);
      Workload workload = toy_workload(2);
      workload.compute.experts_per_token = 2;
      const IterationPrediction predicted = predict_iteration(plan, workload);
      EXPECT_EQ(predicted.memory_bytes,
                plan.summary.memory_per_rank_max.value());
      EXPECT_GT(predicted.time.seconds, 0);
    }
}

// Returns which of a module's operations an entry of the schedule belongs to.
// If matrices are broadcast, publication belongs to the step.
Legs ModuleWork::*operation_of(const PlanPart& part,
                               const ScheduleEntry& entry) {
  switch (entry.purpose) {
    case Purpose::kGatherModule:
      return &ModuleWork::gather;
    case Purpose::kScatterModule:
      return &ModuleWork::scatter;
    case Purpose::kSum:
    case Purpose::kSumReplicas:
      return &ModuleWork::reduce;
    case Purpose::kPublish:
      return part.traffic == Traffic::kBroadcast ? nullptr
                                                 : &ModuleWork::publish;
    default:
      return nullptr;
  }
}

// The bytes of all operations of an iteration must be those of the schedule's
// entries, module by module and rank by rank.
void expect_bytes_of_entries(const Plan& plan) {
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    SCOPED_TRACE(cat("rank ", rank));
    const auto calls =
        usual_calls(plan, coordinates_of(plan.mesh, rank).stage, 2);
    const std::vector<ModuleWork> once =
        rank_transfers(plan, toy_workload(), rank).own;
    std::vector<ModuleWork> left(once.size());
    const auto add = [&](int32_t module, Legs ModuleWork::*operation,
                         const WireBytes& bytes, int64_t times) {
      (left[static_cast<size_t>(module)].*operation)
          .first.bytes.add(bytes, times);
    };
    for (const ModuleUse& use : uses_of(calls)) {
      const ModuleWork& module = once[static_cast<size_t>(use.module)];
      add(use.module, &ModuleWork::gather, module.gather.bytes(), 1);
      if (use.completes())
        add(use.module, &ModuleWork::scatter, module.scatter.bytes(), 1);
      if (!use.is_last) continue;
      add(use.module, &ModuleWork::reduce, module.reduce.bytes(), 1);
      add(use.module, &ModuleWork::publish, module.publish.bytes(), 1);
    }
    for (const ScheduleEntry& entry : iteration_of(plan, rank, calls)) {
      const PlanPart& part = plan.parts[static_cast<size_t>(entry.part)];
      Legs ModuleWork::*operation = operation_of(part, entry);
      if (operation == nullptr) continue;
      const int32_t module =
          entry.module >= 0
              ? entry.module
              : first_module(part,
                             part.buckets[static_cast<size_t>(entry.bucket)]);
      add(module, operation, entry.bytes, -1);
    }
    for (size_t m = 0; m < left.size(); ++m)
      for (const auto operation : kModuleOperations) {
        const WireBytes& bytes = (left[m].*operation).first.bytes;
        EXPECT_TRUE(bytes.sent_intra == 0 && bytes.sent_inter == 0 &&
                    bytes.received_intra == 0 && bytes.received_inter == 0)
            << "module " << m;
      }
  }
}

TEST(PlanIteration, OperationsAreTheEntriesOfTheSchedule) {
  for (const Reach reach : {Reach::kDirect, Reach::kPerNode}) {
    PlanOptions options;
    for (const ZeroSizes& sizes : all_zero_sizes(8)) {
      SCOPED_TRACE(to_string(sizes));
      options = zero_options(sizes, 4);
      options.zero.reach = reach;
      expect_bytes_of_entries(plan_of(toy_model(2), "dp=8", options));
    }
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(strategy);
      options = with_strategy(strategy);
      options.ranks_per_node = 4;
      options.zero.reach = reach;
      expect_bytes_of_entries(plan_of(toy_model(2), "dp=8", options));
      expect_bytes_of_entries(plan_of(toy_moe(2), "dp=4,ep=2", options));
    }
  }
  expect_bytes_of_entries(plan_of(toy_model(4), "dp=2,tp=2,pp=2"));
  for (const ZeroSizes& experts : all_zero_sizes(2)) {
    PlanOptions options = zero_options({4, 2, 2}, 2);
    options.zero.experts = experts;
    expect_bytes_of_entries(plan_of(toy_moe(2), "dp=2,ep=2", options));
  }
}

TEST(PlanIteration, OneRankComputesAndSteps) {
  const Plan plan = plan_of(toy_model(2), "dp=1", zero_options({1, 1, 1}));
  const IterationPrediction predicted =
      predict_iteration(plan, toy_workload(3));
  const double weights = 2 * 1920 + 1024;
  EXPECT_NEAR(predicted.time.compute_seconds, 3 * 6 * weights * 64 / 1e7, 1e-9);
  EXPECT_EQ(predicted.time.waited(), 0);
  EXPECT_NEAR(predicted.time.step_seconds, predict(plan)[0].step_seconds_mean,
              1e-15);
  EXPECT_EQ(predicted.slow_bytes, 0);
  EXPECT_EQ(predicted.memory_bytes, plan.summary.memory_per_rank_max.value());
}

TEST(PlanIteration, PoolsAreThoseOfThePlan) {
  PlanOptions options = zero_options({8, 8, 8});
  options.zero.prefetch = 1;
  const Plan plan = plan_of(toy_model(2), "dp=8", options);
  const IterationWork work = plan_iteration(plan, toy_workload(), 0);
  EXPECT_EQ(work.gather_slots, 2);
  EXPECT_EQ(work.scatter_slots, 2);
  ASSERT_EQ(work.modules.size(), 4u);
  EXPECT_FALSE(work.modules[0].gather.empty());
  EXPECT_TRUE(work.modules[0].publish.empty());  // each slice has a single
                                                 // keeper
}

TEST(PlanIteration, OverlapOrdersAsItShould) {
  const Plan plan = plan_of(toy_model(4), "dp=8", zero_options({8, 4, 4}));
  Workload workload = toy_workload(2);
  std::vector<double> seconds;
  for (Overlap overlap :
       {Overlap::kBackground, Overlap::kMain, Overlap::kNone}) {
    workload.overlap = overlap;
    seconds.push_back(predict_iteration(plan, workload).time.seconds);
  }
  EXPECT_LT(seconds[0], seconds[2]);
  EXPECT_LE(seconds[1], seconds[2]);
}

// Two stages: each waits for one micro-batch of the other.
// An iteration of many micro-batches is extrapolated; one that is simulated as
// a whole takes as long, whatever it waits for.
TEST(PlanIteration, ManyMicroBatchesTakeAsLongAsIfAllWereSimulated) {
  const Model model = toy_model(3);
  for (const ZeroSizes sizes :
       {ZeroSizes{16, 1, 1}, ZeroSizes{16, 16, 16}, ZeroSizes{16, 4, 2}})
    for (const double flops : {1e6, 1e7, 1e9}) {
      const Plan plan =
          plan_of(model, "dp=16", zero_options(sizes), {"adamw", {}});
      Workload workload = toy_workload(kMostSimulated + 57);
      workload.compute.flops_per_second = flops;
      const IterationTime whole =
          simulate_iteration(plan_iteration(plan, workload, 0));
      const IterationTime time = predict_iteration(plan, workload).time;
      EXPECT_NEAR(time.seconds / whole.seconds, 1, 1e-3) << flops;
      EXPECT_NEAR(time.waited() / whole.seconds, whole.waited() / whole.seconds,
                  1e-3);
      EXPECT_NEAR(time.compute_seconds / whole.compute_seconds, 1, 1e-9);
    }
}

TEST(PlanIteration, APipelineHasABubble) {
  const Plan plan = plan_of(toy_model(4), "pp=2", zero_options({1, 1, 1}));
  const IterationPrediction predicted =
      predict_iteration(plan, toy_workload(4));
  EXPECT_EQ(predicted.stage, 1);  // has the head
  const double micro_batch = 6 * (2 * 1920.0 + 1024) * 64 / 1e7;
  EXPECT_NEAR(predicted.time.bubble_seconds, micro_batch, 1e-9);
  EXPECT_NEAR(predicted.time.compute_seconds, 4 * micro_batch, 1e-9);
}

TEST(PlanIteration, MeasuredTimesReplaceShapes) {
  const Plan plan = plan_of(toy_model(1), "dp=2", zero_options({2, 1, 1}));
  Workload workload = toy_workload();
  workload.measured = {{0.5, 0.25}, {1, 2}, {3, 4}};
  EXPECT_DOUBLE_EQ(predict_iteration(plan, workload).time.compute_seconds,
                   10.75);
  workload.measured.pop_back();
  EXPECT_THROW(predict_iteration(plan, workload), UsageError);
}

// 64 tokens of 16 in fp32 over 4 ranks: 3 pieces of 1 KiB each way, twice, with
// an overhead each and a latency.
TEST(PlanIteration, SumsOverTensorParallelRanksAreWaitedFor) {
  PlanOptions options;
  options.links = {1e6, 1e5, 1e-3, false};
  const Plan plan = plan_of(toy_model(2), "tp=4", options);
  Workload workload = toy_workload();
  EXPECT_EQ(tp_sum_seconds(plan, workload), 0);
  const double without = predict_iteration(plan, workload).time.seconds;
  workload.hidden = 16;
  const double sum = 2 * (3 * 1e-4 + 3 * 1024 / 1e6 + 1e-3);
  EXPECT_DOUBLE_EQ(tp_sum_seconds(plan, workload), sum);
  EXPECT_NEAR(predict_iteration(plan, workload).time.seconds,
              without + (2 * 4 + 2) * sum, 1e-9);
}

TEST(PlanIteration, TheSlowerOfTwoTransfersPortByPort) {
  Transfer a, b;
  a.bytes = {.sent_intra = 3, .received_inter = 1};
  b.bytes = {.sent_intra = 2, .sent_inter = 4};
  a.messages_intra = 7;
  b.parts = 5;
  const Transfer c = slower(a, b);
  EXPECT_EQ(c.bytes.sent_intra, 3);
  EXPECT_EQ(c.bytes.sent_inter, 4);
  EXPECT_EQ(c.bytes.received_inter, 1);
  EXPECT_EQ(c.messages_intra, 7);
  EXPECT_EQ(c.parts, 5);
}

}  // namespace
}  // namespace canzona::sim::plan_iteration_test

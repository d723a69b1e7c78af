#include "canzona/sim/plan_iteration.h"

#include <gmock/gmock.h>

#include <limits>

#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/sim/test_work.h"

namespace canzona::sim::cluster_prediction_test {
namespace {

LinkLevel level(int32_t ranks, double rate, double latency = 0,
                double oversubscription = 1) {
  return {"level", ranks, rate, latency, oversubscription};
}

Cluster two_levels(double intra = 1e6, double inter = 1e5) {
  Cluster cluster;
  cluster.name = "toy";
  cluster.card = {"card", 1e8};
  cluster.levels = {level(4, intra), level(1024, inter)};
  return cluster;
}

Workload toy_work(int64_t micro_batches = 2) {
  Workload work;
  work.compute = {.tokens = 64, .length = 16, .width = 16};
  work.compute.flops_per_second = 1e8;
  work.num_micro_batches = micro_batches;
  return work;
}

struct Case {
  Plan plan;
  Workload work;

  double seconds() const { return predict_cluster(plan, work).seconds(); }
};

Case case_of(const Cluster& cluster, const std::string& mesh,
             const Model& model = toy_model(4), PlanOptions options = {},
             const std::string& rule = "muon") {
  Workload work = toy_work();
  if (model.num_experts > 0) work.compute.experts_per_token = 2;
  apply(cluster, options, work);
  Plan plan = plan_of(model, mesh, options, {rule, {}});
  return {at_rate(std::move(plan), cluster.card.flops_per_second), work};
}

constexpr const char* kMeshes[] = {"dp=8", "dp=4,tp=4", "dp=16", "dp=32,tp=2",
                                   "dp=4,pp=2,tp=2"};

// Two levels without latency are the two classes of links of any plan.
TEST(ClusterPrediction, OfTwoLevelsIsThatOfPlainLinks) {
  for (const char* mesh : kMeshes) {
    Case c = case_of(two_levels(), mesh);
    const ClusterPrediction predicted = predict_cluster(c.plan, c.work);
    Workload plain = toy_work();
    PlanOptions options;
    options.links = {1e6, 1e5, 0, false};
    options.ranks_per_node = 4;
    const Plan plan = at_rate(plan_of(toy_model(4), mesh, options), 1e8);
    const IterationPrediction expected = predict_iteration(plan, plain);
    EXPECT_EQ(predicted.seconds(), expected.time.seconds) << mesh;
    EXPECT_EQ(predicted.step_seconds(), expected.time.step_seconds) << mesh;
    EXPECT_EQ(predicted.memory_bytes(), expected.memory_bytes) << mesh;
  }
}

TEST(ClusterPrediction, OnInfiniteLinksComputeRemains) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const char* mesh : {"dp=8", "dp=16", "dp=4,tp=2"}) {
    const Case c = case_of(two_levels(kInfinite, kInfinite), mesh);
    const ClusterPrediction p = predict_cluster(c.plan, c.work);
    EXPECT_NEAR(p.seconds(), p.time().compute_seconds + p.step_seconds(),
                1e-12);
    double step = 0;
    for (const RankCost& rank : predict(c.plan))
      step = std::max(step, rank.transform_seconds_mean);
    EXPECT_NEAR(p.step_seconds(), step, 1e-12) << mesh;
    EXPECT_NEAR(p.used_share() * p.seconds(), p.time().compute_seconds, 1e-9);
  }
}

// Bytes between nodes pass through one port of the busiest rank.
TEST(ClusterPrediction, IsNeverFasterThanTheBusiestPort) {
  for (const char* mesh : kMeshes) {
    for (const double inter : {1e3, 1e4, 1e5}) {
      const Case c = case_of(two_levels(1e6, inter), mesh);
      const ClusterPrediction p = predict_cluster(c.plan, c.work);
      EXPECT_GE(p.seconds(),
                static_cast<double>(p.time().bytes.sent_inter) / inter)
          << mesh;
      EXPECT_GE(p.seconds(),
                static_cast<double>(p.time().bytes.sent_intra) / 1e6);
    }
  }
}

TEST(ClusterPrediction, MoreSpreadIsNeverFaster) {
  for (const char* mesh : kMeshes) {
    double last = 0;
    for (const double spread : {0.0, 0.01, 0.05, 0.2}) {
      Cluster cluster = two_levels();
      cluster.spread = {spread, spread};
      const double now = case_of(cluster, mesh).seconds();
      EXPECT_GE(now, last) << mesh << " " << spread;
      last = now;
    }
    EXPECT_GT(last, case_of(two_levels(), mesh).seconds()) << mesh;
  }
}

// Twice the cards have a slower slowest one; twice the micro-batches have more
// even sequences.
TEST(ClusterPrediction, SpreadGrowsWithRanksAndShrinksWithMicroBatches) {
  Cluster cluster = two_levels();
  cluster.spread = {0.05, 0.5};
  const auto of = [&](const std::string& mesh, int64_t micro_batches) {
    Case c = case_of(cluster, mesh);
    c.work.num_micro_batches = micro_batches;
    return predict_cluster(c.plan, c.work);
  };
  EXPECT_GT(of("dp=32", 2).slowest_card, of("dp=16", 2).slowest_card);
  EXPECT_GT(of("dp=16", 2).longest_batch, of("dp=16", 8).longest_batch);
  EXPECT_EQ(of("dp=1,tp=2,pp=4", 2).longest_batch, 1);
}

// A third level as fast as the second changes nothing; one that is slower,
// oversubscribed or farther takes longer.
TEST(ClusterPrediction, KnowsLevelsBeyondTheSecond) {
  Cluster cluster = two_levels();
  const double two = case_of(cluster, "dp=32").seconds();
  cluster.levels = {level(4, 1e6), level(16, 1e5), level(1024, 1e5)};
  EXPECT_EQ(case_of(cluster, "dp=32").seconds(), two);
  EXPECT_EQ(case_of(cluster, "dp=16").seconds(),
            case_of(two_levels(), "dp=16").seconds());
  Cluster slow = cluster, shared = cluster, far = cluster;
  slow.levels[2].bytes_per_second = 5e4;
  shared.levels[2].oversubscription = 2;
  far.levels[2].latency_seconds = 1;
  EXPECT_GT(case_of(slow, "dp=32").seconds(), two);
  EXPECT_EQ(case_of(slow, "dp=32").seconds(),
            case_of(shared, "dp=32").seconds());
  EXPECT_GT(case_of(far, "dp=32").seconds(), two + 1);
  // No rank sends that far.
  EXPECT_EQ(case_of(slow, "dp=16").seconds(),
            case_of(cluster, "dp=16").seconds());
}

// The sum of the only bucket.
Transfer sum_of_bucket(const Case& c) {
  for (const ModuleWork& module : rank_transfers(c.plan, c.work, 0).own)
    if (!module.reduce.empty()) return module.reduce.first;
  ADD_FAILURE() << "nothing is summed";
  return {};
}

// 16 ranks on 4 nodes: a ring sends as many bytes to its neighbour as pairs
// send to all, a quarter of them between nodes, however long the longest run
// is.
TEST(ClusterPrediction, ARingSendsToItsNeighbour) {
  Cluster cluster = two_levels();
  cluster.levels[0].latency_seconds = 1e-3;
  cluster.levels[1].latency_seconds = 1e-3;
  Case c = case_of(cluster, "dp=16", toy_model(2), {}, "adamw");
  const Transfer pairs = sum_of_bucket(c);
  c.work.rings = true;
  const Transfer ring = sum_of_bucket(c);
  EXPECT_EQ(ring.bytes.sent_intra, pairs.bytes.sent());
  EXPECT_EQ(ring.bytes.sent_inter, pairs.bytes.sent() / 4);
  EXPECT_EQ(ring.messages_inter, 15);
  EXPECT_EQ(ring.parts, 1);
  EXPECT_DOUBLE_EQ(ring.added_latency_seconds, 14e-3);
}

// One rank of a group on every node: all hops are between nodes.
TEST(ClusterPrediction, ARingOfOneRankPerNodeIsBetweenNodes) {
  Case c = case_of(two_levels(), "dp=4,tp=4", toy_model(2), {}, "adamw");
  const Transfer pairs = sum_of_bucket(c);
  c.work.rings = true;
  const Transfer ring = sum_of_bucket(c);
  EXPECT_EQ(ring.bytes.sent_inter, pairs.bytes.sent_inter);
  EXPECT_EQ(ring.bytes.sent_intra, 0);
}

// 2 of 4 experts per token, 64 tokens of 16 in fp32 over two ranks, half of
// which stay: 4 KiB to the other, four times per layer.
TEST(ClusterPrediction, TokensGoToTheirExpertsAndBack) {
  Case c = case_of(two_levels(), "dp=4,ep=2", toy_moe(2));
  EXPECT_EQ(token_exchange_seconds(c.plan, c.work), 0);
  const double without = c.seconds();
  c.work.hidden = 16;
  const double once = 2 * 64 * 16 * 4 / 2 / 1e6;
  EXPECT_DOUBLE_EQ(token_exchange_seconds(c.plan, c.work), once);
  EXPECT_NEAR(
      predict_cluster(c.plan, c.work).time().compute_seconds -
          predict_cluster(c.plan,
                          case_of(two_levels(), "dp=4,ep=2", toy_moe(2)).work)
              .time()
              .compute_seconds,
      2 * 2 * 4 * once, 1e-9);
  EXPECT_GT(c.seconds(), without);
}

// Returns the finishing time of 1F1B with identical stages, task by task.
double pipeline_seconds(int64_t stages, int64_t batches, double forward,
                        double backward, double send) {
  std::vector<std::vector<std::pair<bool, int64_t>>> tasks;
  for (int64_t s = 0; s < stages; ++s) {
    auto& list = tasks.emplace_back();
    const int64_t ahead = std::min(batches, stages - 1 - s);
    int64_t f = 0, b = 0;
    for (; f < ahead; ++f) list.push_back({true, f});
    for (; f < batches; ++f) {
      list.push_back({true, f});
      list.push_back({false, b++});
    }
    for (; b < batches; ++b) list.push_back({false, b});
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto all = static_cast<size_t>(batches);
  std::vector<std::vector<double>> done_f(static_cast<size_t>(stages),
                                          std::vector<double>(all, kNever));
  auto done_b = done_f;
  std::vector<size_t> next(static_cast<size_t>(stages), 0);
  std::vector<double> free(static_cast<size_t>(stages), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < tasks.size(); ++s) {
      while (next[s] < tasks[s].size()) {
        const auto [is_forward, batch] = tasks[s][next[s]];
        const auto k = static_cast<size_t>(batch);
        const bool last = s + 1 == tasks.size();
        const double input = is_forward ? (s == 0 ? 0 : done_f[s - 1][k] + send)
                             : last     ? done_f[s][k]
                                        : done_b[s + 1][k] + send;
        if (input == kNever) break;
        free[s] = std::max(free[s], input) + (is_forward ? forward : backward);
        (is_forward ? done_f : done_b)[s][k] = free[s];
        ++next[s];
        moved = true;
      }
    }
  }
  return free[0];
}

// Sends between stages cost 2 (pp - 1) / pp sends per micro-batch, and 2 (pp -
// 1) at the ends, as in a task-by-task execution of 1F1B.
TEST(ClusterPrediction, SendsBetweenStagesAreThoseOf1F1B) {
  for (const int32_t pp : {2, 4}) {
    for (const int64_t batches : {8, 32}) {
      const std::string mesh = cat("dp=2,pp=", pp, ",tp=4");
      Case c = case_of(two_levels(1e9, 1e9), mesh);
      c.work.num_micro_batches = batches;
      c.work.hidden = 16;
      const double send = stage_send_seconds(c.plan, c.work);
      EXPECT_DOUBLE_EQ(send, 64 * 16 * 4 / 1e9);
      const double exposed = exposed_sends(c.plan, c.work);
      const double both = 3.0, sends = 0.4;
      const auto n = static_cast<double>(batches);
      const double predicted = n * both + (pp - 1) * both +
                               (2 * n * exposed / send + 2 * (pp - 1)) * sends;
      const double tasks = pipeline_seconds(pp, batches, 1, 2, sends);
      EXPECT_NEAR(predicted, tasks, 0.05 * tasks) << pp << " " << batches;
    }
  }
}

TEST(ClusterPrediction, SendsBetweenStagesTakeTime) {
  Case c = case_of(two_levels(), "dp=2,pp=4,tp=4");
  c.work.compute.tokens = 64;
  const double without = c.seconds();
  c.work.hidden = 16;
  EXPECT_GT(c.seconds(), without);
  EXPECT_EQ(stage_send_seconds(case_of(two_levels(), "dp=8").plan, c.work), 0);
}

// The first stage has an embedding, the last a head: three kinds of ranks.
TEST(ClusterPrediction, LooksAtOneRankOfEachKind) {
  EXPECT_EQ(
      predict_stages(case_of(two_levels(), "dp=8").plan, toy_work()).size(),
      1u);
  const Case c = case_of(two_levels(), "dp=4,pp=4");
  const ClusterPrediction p = predict_cluster(c.plan, c.work);
  ASSERT_EQ(p.kinds.size(), 3u);
  EXPECT_EQ(p.kinds[1].stage, 2);
  EXPECT_GE(p.seconds(), p.kinds[0].time.seconds);
}

// Two tensors per layer, on one home, in two rounds of which the first is the
// long one.
TEST(ClusterPrediction, ModulesLeaveWhenTheyAreUpdated) {
  const Plan plan = plan_of(toy_model(4), "dp=2,tp=2");
  const std::vector<double> shares = applied_shares(plan);
  ASSERT_EQ(shares.size(), 6u);
  EXPECT_EQ(shares.front(), 0);  // AdamW's
  EXPECT_EQ(std::ranges::max(shares), 1);
  IterationWork work = uniform_work(
      3,
      {.forward_seconds = 1, .backward_seconds = 1, .publish = inter_leg(4)});
  work.step_seconds = 20;
  const double at_end = simulate_iteration(work).seconds;
  for (ModuleWork& module : work.modules) module.publish_after = 0.25;
  // Twelve seconds of new parameters are in flight while the step has 15 left.
  EXPECT_EQ(simulate_iteration(work).seconds, 6 + 20);
  EXPECT_EQ(at_end, 4 + 4 + 4 + 4 + 20);
}

}  // namespace
}  // namespace canzona::sim::cluster_prediction_test

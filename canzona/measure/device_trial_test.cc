// Steps and iterations on an asynchronous device: the work of modules is
// enqueued, and the results are as planned. The only clock is the device's,
// which counts its pieces of work.
#include <gtest/gtest.h>

#include "canzona/base/text.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/measure/test_bench.h"

namespace canzona::measure::device_trial_test {
namespace {

class DeviceTrial : public testing::Test {
 protected:
  // On CPU engines if not `late`.
  StepTrial run(const TestBenchWish& wish, const StepChoice& choice,
                StepTrialRequest request, bool late = true,
                const Link& link = {}) {
    const Plan plan = bench_plan(wish, choice, link);
    request.runtime.overlap = choice.overlap;
    const RankRunner ranks =
        on_threads(plan.mesh.world(), {.ranks_per_node = wish.ranks_per_node});
    const StepTrial trial =
        on_every_rank(ranks, link, [&](Communicator& world) {
          const std::unique_ptr<Engine> engine =
              late ? std::make_unique<LateEngine>(device_) : make_cpu_engine();
          return run_step_trial(plan, world, *engine, request);
        });
    expect_as_planned(plan, request, trial);
    return trial;
  }

  static void expect_as_planned(const Plan& plan,
                                const StepTrialRequest& request,
                                const StepTrial& trial) {
    const PlannedBytes bytes =
        planned_bytes(plan, DType::kFp32, request.micro_batches);
    for (size_t r = 0; r < bytes.ranks.size(); ++r)
      EXPECT_EQ(trial.bytes_sent[r], bytes.ranks[r].sent());
    EXPECT_EQ(trial.memory_bytes_max, plan.summary.memory_per_rank_max.value());
    EXPECT_GT(trial.iteration.median, 0);
  }

  LateDevice device_{{.seed = 3, .eagerness = 0.6}};
};

TEST_F(DeviceTrial, AllSizesDoAsPlannedAndLeadToTheResultOfTheCpu) {
  for (const int64_t micro_batches : {1, 2}) {
    const TestBenchWish wish{.mesh = micro_batches == 1 ? "dp=4" : "dp=2,tp=2"};
    const StepTrialRequest request{.steps = 2,
                                   .iterations = 2,
                                   .micro_batches = micro_batches,
                                   .product_tokens = 8};
    StepTrialRequest on_cpu = request;
    on_cpu.product_tokens = 0;
    const StepTrial wanted = run(wish, {"balanced"}, on_cpu, /*late=*/false);
    EXPECT_FALSE(wanted.knows_exposed);
    for (const StepChoice& choice : all_cuts(wish.mesh)) {
      SCOPED_TRACE(name_of(choice, 4));
      const StepTrial trial = run(wish, choice, request);
      EXPECT_EQ(trial.digest, wanted.digest);
      EXPECT_EQ(trial.state_digest, wanted.state_digest);
      EXPECT_FALSE(trial.knows_busy);
    }
  }
}

TEST_F(DeviceTrial, LinksAreModelledThere) {
  const Link link = LinkModel{1e11, 1e10, 1e-7, 2};
  for (const Overlap overlap : {Overlap::kNone, Overlap::kBackground}) {
    const StepTrial trial =
        run({.mesh = "dp=4"}, {"balanced", {4, 4, 4}, overlap},
            {.steps = 2, .iterations = 2, .product_tokens = 8}, true, link);
    EXPECT_TRUE(trial.knows_busy);
    EXPECT_FALSE(trial.knows_exposed);
    EXPECT_GT(trial.links.busy, 0);
  }
}

// The host does not wait for it.
TEST_F(DeviceTrial, TimeCanStandForProducts) {
  run({.mesh = "dp=2"}, {"balanced", {2, 2, 2}},
      {.steps = 2, .iterations = 2, .compute_seconds = 1000});
}

}  // namespace
}  // namespace canzona::measure::device_trial_test

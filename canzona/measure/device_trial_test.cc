// Iterations and steps on an asynchronous device: the work of modules is
// enqueued, and the results are as planned. The only clock is the device's,
// which counts its pieces of work.
#include "canzona/measure/iteration_trial.h"

#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/measure/step_bench.h"
#include "canzona/measure/test_bench.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona::device_trial_test {
namespace {

class DeviceTrial : public testing::Test {
 protected:
  ZeroBenchRequest bench_of(const TestBenchWish& wish) {
    ZeroBenchRequest request = test_bench(wish, batches_);
    request.batches = nullptr;
    request.make_engine = [this] {
      return std::make_unique<LateEngine>(device_);
    };
    request.compute.tokens = 8;
    return request;
  }

  LateDevice device_{{.seed = 3, .eagerness = 0.6}};
  TestTokens tokens_{3000};
  Batches batches_{tokens_, {.length = 12, .seed = 9}};
};

void expect_cells(const ZeroBench& bench, const ZeroBenchRequest& request) {
  for (const ZeroCell& cell : bench.cells) {
    SCOPED_TRACE(cat(to_string(cell.sizes), " ", to_string(cell.overlap)));
    ASSERT_EQ(cell.error, "");
    const IterationTrial& trial = cell.first();
    for (size_t r = 0; r < cell.bytes.ranks.size(); ++r)
      EXPECT_EQ(trial.bytes_sent[r], cell.bytes.ranks[r].sent());
    EXPECT_EQ(std::ranges::max(trial.memory_bytes), cell.memory_predicted_max);
    EXPECT_GT(trial.iteration_seconds, 0);
    EXPECT_EQ(std::ssize(trial.seconds), request.trial.steps);
    EXPECT_GT(cell.predicted.seconds, 0);
  }
  EXPECT_EQ(bench.disagreement(request.mesh,
                               request.settings.micro_batches(request.mesh),
                               request.settings.runtime.wire),
            "");
}

TEST_F(DeviceTrial, CellsDoAsPlannedAndLeadToOneResult) {
  for (const TestBenchWish& wish :
       {TestBenchWish{.mesh = "dp=4"},
        TestBenchWish{.mesh = "dp=2,tp=2", .micro_batches = 2}}) {
    const ZeroBenchRequest request = bench_of(wish);
    const ZeroBench bench = run_zero_bench(request);
    EXPECT_EQ(bench.cells.size(),
              3 * all_zero_sizes(request.mesh.homes()).size());
    expect_cells(bench, request);
    for (const double seconds : bench.inputs.forward_seconds)
      EXPECT_GE(seconds, 0);
  }
}

TEST_F(DeviceTrial, LinksAreModelledThere) {
  ZeroBenchRequest request = bench_of({.mesh = "dp=4"});
  request.link = LinkModel{1e11, 1e10, 1e-7, 2};
  request.overlaps = {Overlap::kNone, Overlap::kBackground};
  const ZeroBench bench = run_zero_bench(request);
  expect_cells(bench, request);
  for (const ZeroCell& cell : bench.cells)
    EXPECT_GT(cell.first().busy_seconds, 0);
}

TEST_F(DeviceTrial, TimeCanStandForProducts) {
  ZeroBenchRequest request = bench_of({.mesh = "dp=2"});
  request.compute = {.seconds = 1000};  // the host does not wait for it
  expect_cells(run_zero_bench(request), request);
}

TEST_F(DeviceTrial, WhatDoesNotFitIsNotBegun) {
  ZeroBenchRequest request = bench_of({.mesh = "dp=2"});
  request.device_bytes = 1000;
  EXPECT_THROW(run_zero_bench(request), UsageError);
}

// Counted by hand: a matrix is multiplied once forward and twice backward, an
// embedding never.
TEST_F(DeviceTrial, ModulesMultiplyTheirOwnMatrices) {
  const TestBenchWish wish{.mesh = "dp=1"};
  const TrainSettings settings = bench_settings(wish);
  const Plan plan = zero_plan(wish, settings, {1, 1, 1});
  run_ranks(1, [&](Communicator& world) {
    LateEngine engine(device_);
    Runtime runtime(plan, world, engine, {});
    EngineWork work(runtime, engine, {.tokens = 8});
    for (int32_t m = 0; m < num_modules(plan.model); ++m) {
      int64_t matrices = 0;
      for (const Tensor& tensor : plan.model.tensors)
        if (module_of(plan.model, tensor) == m &&
            tensor.role != Role::kEmbedding && tensor.shape.size() == 2)
          ++matrices;
      runtime.wait_params(m);
      engine.num_bf16_products = 0;
      work.forward(m);
      EXPECT_EQ(engine.num_bf16_products, matrices) << "module " << m;
      work.backward(m);
      EXPECT_EQ(engine.num_bf16_products, 3 * matrices) << "module " << m;
    }
  });
}

TEST_F(DeviceTrial, StepsThatAreIssuedLeadToTheResultOfTheCpu) {
  const TestBenchWish wish{.mesh = "dp=2,tp=2"};
  const Plan plan = zero_plan(wish, bench_settings(wish), {2, 1, 1});
  const auto run = [&](bool late) {
    std::string digest;
    run_ranks(4, [&](Communicator& world) {
      const std::unique_ptr<Engine> engine =
          late ? std::make_unique<LateEngine>(device_) : make_cpu_engine();
      const StepTrial trial =
          run_step_trial(plan, world, *engine,
                         {.iterations = 2, .product_tokens = late ? 8 : 0});
      EXPECT_GT(trial.iteration_seconds, 0);
      if (world.rank() == 0) digest = trial.digest + trial.state_digest;
    });
    return digest;
  };
  EXPECT_EQ(run(true), run(false));
  EXPECT_THROW(run_ranks(4,
                         [&](Communicator& world) {
                           run_step_trial(plan, world, *make_cpu_engine(),
                                          {.product_tokens = 8});
                         }),
               UsageError);
}

}  // namespace
}  // namespace canzona::device_trial_test

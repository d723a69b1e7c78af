// A step without a refresh makes no CUDA call that waits, allocates or reads
// results of the GPU.
#include <gtest/gtest.h>

#include <string>

#include "canzona/linalg/cuda/test_cuda_calls.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::waits_cuda_test {
namespace {

// One step, in which the test itself does not wait either.
void issue(Runtime& runtime, Engine& engine, int64_t step) {
  const Plan& plan = runtime.plan();
  const Coordinates& at = runtime.coordinates();
  const std::vector<int32_t> modules = modules_of(runtime);
  runtime.begin_iteration(uses_of(runtime, 1), 1);
  for (const int32_t module : modules) {
    runtime.wait_params(module);
    runtime.release_params(module);
  }
  for (auto module = modules.rbegin(); module != modules.rend(); ++module) {
    runtime.wait_params(*module);
    for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t) {
      const Tensor& tensor = plan.model.tensors[static_cast<size_t>(t)];
      if (!runtime.holds(t) || module_of(plan.model, tensor) != *module)
        continue;
      const auto [home, num_homes] = home_of(plan, at, tensor);
      make_gradient(engine, {GradientKind::kExact, home, num_homes, step},
                    tensor, plan.mesh.tp, at.t, runtime.gradient(t).data());
      runtime.grad_ready(t);
    }
    runtime.release_params(*module);
  }
  runtime.issue_step(
      {.learning_rate = 0.01,
       .gradient_factor = gradient_factor(GradientKind::kExact, plan.mesh),
       .clip_norm = 0.5});
}

std::string calls_of_steps(const Plan& plan) {
  constexpr int64_t kWarm = 4, kCounted = 4;
  std::string found;
  run_ranks(plan.mesh.world(), [&](Communicator& world) {
    const auto engine = make_cuda_engine();
    Runtime runtime(plan, world, *engine, {});
    set_initial_parameters(runtime);
    for (int64_t step = 1; step <= kWarm; ++step) issue(runtime, *engine, step);
    runtime.outcome();
    engine->synchronize();
    world.barrier();
    if (world.rank() == 0) forget_cuda_calls();
    world.barrier();
    for (int64_t step = 1; step <= kCounted; ++step)
      issue(runtime, *engine, kWarm + step);
    world.barrier();
    if (world.rank() == 0) found = cuda_calls();
    world.barrier();
    runtime.outcome();
  });
  return found;
}

TEST(CudaWaits, AreNoneInAStepWithoutARefresh) {
  std::string why;
  if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  for (const std::string rule : {"muon", "adamw"})
    for (const std::string zero : {"zero1", "zero3"})
      for (const std::string mesh : {"dp=1", "dp=4", "dp=2,tp=2"}) {
        SCOPED_TRACE(cat(rule, " ", mesh, " ", zero));
        EXPECT_EQ(
            calls_of_steps(small_plan(
                toy_moe(),
                {.mesh = mesh, .rule = rule, .device = "cuda", .zero = zero})),
            "");
      }
}

// Checks that calls are counted at all: both copies wait, and so does the
// release of memory that work may still use.
TEST(CudaWaits, AreCounted) {
  std::string why;
  if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  const auto engine = make_cuda_engine();
  forget_cuda_calls();
  float number = 1;
  std::byte* there = engine->memory().allocate(4);
  engine->upload(there, reinterpret_cast<std::byte*>(&number), 4);
  engine->download(reinterpret_cast<std::byte*>(&number), there, 4);
  engine->memory().release(there);
  EXPECT_EQ(cuda_calls(),
            "cudaStreamSynchronize x 3; cudaMemcpyAsync to the host x 1; "
            "cudaMalloc x 1; cudaFree x 1; ");
}

}  // namespace
}  // namespace canzona::runtime::waits_cuda_test

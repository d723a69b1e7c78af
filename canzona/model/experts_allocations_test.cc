#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/test_allocations.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/model/test_experts.h"

namespace canzona::model::experts_allocations_test {
namespace {

TEST(Experts, AllocateNothingInARun) {
  const ExpertTrial trial({.shared = 1});
  run_ranks(4, [&](Communicator& world) {
    const int rank = world.rank();
    const auto tp = world.split(rank / 2, rank, "tp");
    const auto ep = world.split(rank % 2, rank, "ep");
    const Parallel parallel{.tp = tp.get(), .ep = ep.get(), .num_layers = 1};
    ExpertBench<float> bench(trial, parallel);
    const std::vector<float> x(static_cast<size_t>(trial.elements()), 0.5F);
    std::vector<float> y(x.size()), dx(x.size());
    bench.run(x, x, y, dx, Announce::kNothing);
    world.barrier();
    const int64_t before = num_allocations();
    world.barrier();
    bench.run(x, x, y, dx, Announce::kNothing);
    world.barrier();
    EXPECT_EQ(num_allocations(), before);
  });
}

}  // namespace
}  // namespace canzona::model::experts_allocations_test

#include "canzona/measure/stand_in.h"

#include <gtest/gtest.h>

#include <numeric>

#include "canzona/base/error.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/test_bench.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona::measure::stand_in_test {
namespace {

TEST(StandIn, SharesAnIterationAmongTheModulesOfAStage) {
  const Plan plan = plan_of(toy_model(), "dp=2");
  const std::vector<double> shares =
      module_shares(plan, coordinates_of(plan.mesh, 0), 6);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 6, 1e-9);
  EXPECT_EQ(shares[0], 0) << "looking up embeddings takes no time";
}

TEST(StandIn, LastsAsLongAsItIsToldTo) {
  const Plan plan = bench_plan({.mesh = "dp=1"}, {"balanced"});
  run_ranks(1, [&](Communicator& world) {
    const std::unique_ptr<Engine> engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});
    StandIn work(runtime, *engine, {.seconds = 0.03});
    const double begin = wall_seconds();
    for (int32_t m = 0; m < num_modules(plan.model); ++m) {
      work.forward(m);
      work.backward(m);
    }
    EXPECT_GE(wall_seconds() - begin, 0.0299);
  });
}

// Counted by hand: a matrix is multiplied once forward and twice backward, an
// embedding never.
TEST(StandIn, ModulesMultiplyTheirOwnMatrices) {
  LateDevice device({.seed = 3, .eagerness = 0.6});
  const Plan plan = bench_plan({.mesh = "dp=1"}, {"balanced"});
  run_ranks(1, [&](Communicator& world) {
    LateEngine engine(device);
    Runtime runtime(plan, world, engine, {});
    StandIn work(runtime, engine, {.tokens = 8});
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

TEST(StandIn, ProductsNeedRanksThatDoNotWait) {
  const Plan plan = bench_plan({.mesh = "dp=1"}, {"balanced"});
  run_ranks(1, [&](Communicator& world) {
    const std::unique_ptr<Engine> engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});
    EXPECT_THROW(StandIn(runtime, *engine, {.tokens = 8}), UsageError);
  });
}

}  // namespace
}  // namespace canzona::measure::stand_in_test

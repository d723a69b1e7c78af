// Replicas are compared bit by bit, and the rank that differs is named.
#include "canzona/train/run_checks.h"

#include <gmock/gmock.h>

#include <bit>

#include "canzona/base/error.h"
#include "canzona/train/test_training.h"

namespace canzona::train::replicas_test {
namespace {

// Flips the lowest bit of one element of a tensor on one rank.
void turn_a_bit(Runtime& runtime, int32_t tensor, size_t element) {
  runtime.wait_all_params();
  std::vector<float> shard(static_cast<size_t>(runtime.shard_elements(tensor)));
  runtime.get_parameter(tensor, shard);
  shard[element % shard.size()] = std::bit_cast<float>(
      std::bit_cast<uint32_t>(shard[element % shard.size()]) ^ 1U);
  runtime.set_parameter(tensor, shard);
}

std::vector<int32_t> matrices_of(const TestRun& run) {
  const Plan plan = test_plan(run, test_settings(run));
  std::vector<int32_t> out;
  for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
    if (plan.model.tensors[static_cast<size_t>(t)].matrix_rule)
      out.push_back(t);
  return out;
}

std::string name_of(const TestRun& run, int32_t tensor) {
  return test_plan(run, test_settings(run))
      .model.tensors[static_cast<size_t>(tensor)]
      .name;
}

// Every rank computes every update, so a flipped bit stays.
TEST(Replicas, D3ABitTurnedInOneReplicaIsFoundWithParameterAndRank) {
  const TestRun plain{
      .mesh = "dp=4", .strategy = "replicated", .check_replicas = 2};
  const std::vector<int32_t> matrices = matrices_of(plain);
  for (const int32_t tensor :
       {matrices.front(), matrices[matrices.size() / 2], matrices.back()})
    for (const int guilty : {0, 1, 3}) {
      TestRun run = plain;
      run.before_step = [&](int64_t step, int rank, Runtime& runtime) {
        if (step == 3 && rank == guilty) turn_a_bit(runtime, tensor, 77);
      };
      EXPECT_THAT(
          [&] { run_test(run); },
          testing::ThrowsMessage<NumericalError>(testing::AllOf(
              testing::HasSubstr("after step 4"),
              testing::HasSubstr("rank " + std::to_string(guilty) +
                                 " has different values of " +
                                 name_of(run, tensor) + " than rank " +
                                 (guilty == 0 ? "1" : "0") + " and 2 more"),
              testing::HasSubstr("checkpoint of step 2"))))
          << tensor << " on " << guilty;
    }
}

// A norm is not a matrix and is not cut: tp ranks have the same.
TEST(Replicas, D3RanksOfATensorParallelGroupAreComparedToo) {
  for (const char* mesh : {"tp=2", "dp=2,tp=2"}) {
    TestRun run{.mesh = mesh, .check_replicas = 1};
    const TrainSettings settings = test_settings(run);
    const Plan plan = test_plan(run, settings);
    const TestTokens tokens(3000);
    const Batches batches(tokens,
                          {.length = settings.decoder.length, .seed = 9});
    const int32_t world = plan.mesh.world();
    std::optional<Drift> found;
    run_ranks(world, {}, [&](Communicator& ranks) {
      const auto engine = make_cpu_engine();
      Runtime runtime(plan, ranks, *engine, settings.runtime);
      for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
        runtime.set_parameter(
            t, std::vector<float>(
                   static_cast<size_t>(runtime.shard_elements(t)), 0.5F));
      EXPECT_FALSE(find_drift(runtime, ranks).has_value()) << mesh;
      const auto norm = static_cast<int32_t>(plan.model.tensors.size() - 2);
      EXPECT_EQ(plan.model.tensors[static_cast<size_t>(norm)].role,
                Role::kNorm);
      if (ranks.rank() == 1) turn_a_bit(runtime, norm, 3);
      const std::optional<Drift> drift = find_drift(runtime, ranks);
      if (ranks.rank() == 0) found = drift;
    });
    ASSERT_TRUE(found.has_value()) << mesh;
    EXPECT_EQ(found->rank, 1) << mesh;
    EXPECT_EQ(found->other, 0) << mesh;
    EXPECT_EQ(found->keeping, world) << mesh;
  }
}

TEST(Replicas, HealthyRunsOfEveryKindAgreeInEveryStep) {
  for (const TestRun& kind :
       {TestRun{.mesh = "dp=4"}, TestRun{.mesh = "dp=4", .zero = "zero3"},
        TestRun{.mesh = "dp=4", .zero = "hier:2"},
        TestRun{.mesh = "dp=2,tp=2", .rule = "soap"},
        TestRun{.mesh = "dp=2,pp=2", .tied = true},
        TestRun{.mesh = "dp=2,ep=2", .experts = 4},
        TestRun{.mesh = "dp=2,ep=2", .experts = 4, .zero = "zero3"},
        TestRun{.mesh = "dp=2", .strategy = "replicated"}}) {
    TestRun run = kind;
    run.steps = 3;
    run.check_replicas = 1;
    EXPECT_NO_THROW(run_test(run)) << run.mesh << " " << run.zero;
  }
}

}  // namespace
}  // namespace canzona::train::replicas_test

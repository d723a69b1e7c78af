// The step's result depends neither on where states, gradients and parameters
// are cut nor on how they are sent.
#include <gtest/gtest.h>

#include "canzona/runtime/zero/test_zero_classes.h"
#include "canzona/shapes/read_model.h"

namespace canzona::runtime::zero_exactness_test {
namespace {

class ZeroRule : public testing::TestWithParam<std::string> {};

TEST_P(ZeroRule, GivesOneResultForAllSizes) {
  for (const int32_t dp : {1, 2, 8}) {
    ResultClasses results(toy_moe(), dp);
    for (const ZeroSizes& sizes : all_zero_sizes(dp))
      ASSERT_TRUE(results.fit({.sizes = sizes, .rule = GetParam()}));
    EXPECT_EQ(results.count(), 1U);
  }
}

// Every second size, so that the rules together cover all, each with a
// different variant: two models, one and several micro-batches.
TEST_P(ZeroRule, GivesOneResultHoweverThingsTravel) {
  Random random(GetParam().size());
  const std::vector<ZeroSizes> all = all_zero_sizes(8);
  for (const int micro_batches : {1, 3}) {
    ResultClasses results(micro_batches == 1 ? toy_moe() : toy_model(), 8);
    ASSERT_TRUE(results.fit({.sizes = {8, 1, 1},
                             .rule = GetParam(),
                             .micro_batches = micro_batches}));
    for (size_t i = GetParam().size() % 2; i < all.size(); i += 2) {
      ZeroVariant v = random_variant(random, all[i], 2);
      v.rule = GetParam();
      v.micro_batches = micro_batches;
      ASSERT_TRUE(results.fit(v));
    }
    // One result per z2, where sums over micro-batches come first or last.
    EXPECT_EQ(results.count(), micro_batches == 1 ? 1U : 4U);
  }
}

TEST_P(ZeroRule, GivesOneResultOverAllGroupsWhereSumsAreExact) {
  Random random(11 * GetParam().size());
  for (const int32_t dp : {3, 6, 7}) {
    ResultClasses results(toy_model(), dp);
    for (const ZeroSizes& sizes : all_zero_sizes(dp)) {
      ZeroVariant v = random_variant(random, sizes, 1);
      v.rule = GetParam();
      v.gradients = GradientKind::kExact;
      v.micro_batches = 2;
      ASSERT_TRUE(results.fit(v));
    }
    EXPECT_EQ(results.count(), 1U);
  }
}

TEST_P(ZeroRule, IsThatOfOneRankAlone) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{8, 8, 8}, {8, 4, 2}, {4, 2, 4}, {2, 1, 2}}) {
    SCOPED_TRACE(to_string(sizes));
    expect_result_of_one_rank(
        zero_plan(toy_moe(), 8, {.sizes = sizes, .rule = GetParam()}));
  }
}

// Tensors with fewer rows than places, with one element, and with none.
TEST_P(ZeroRule, WorksWithEmptySlices) {
  Random random(13 * GetParam().size());
  for (const int32_t dp : {7, 8}) {
    ResultClasses results(thin_model(), dp);
    for (const ZeroSizes& sizes : all_zero_sizes(dp)) {
      ZeroVariant v = random_variant(random, sizes, 1);
      v.rule = GetParam();
      ASSERT_TRUE(results.fit(v));
    }
    EXPECT_EQ(results.count(), 1U);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, ZeroRule,
                         testing::Values("muon", "muon_nanochat", "muon_muonh",
                                         "shampoo", "soap", "adamw"),
                         [](const auto& of) { return of.param; });

// The tree over six or twelve ranks has no subtrees of three. Sums over z1
// circulate among them; gradients that are cut over three ranks are added
// there.
bool splits_the_tree(int32_t z2, int32_t dp) { return z2 % 3 == 0 && z2 != dp; }

TEST(ZeroGroupsOfThree, OfStatesAndParametersChangeNoBit) {
  for (const int32_t dp : {6, 12}) {
    Random random(static_cast<uint64_t>(dp));
    ResultClasses results(toy_model(1), dp);
    ASSERT_TRUE(results.fit({.sizes = {dp, 1, 1}}));
    for (const ZeroSizes& sizes : all_zero_sizes(dp)) {
      if (splits_the_tree(sizes.z2, dp) || sizes.z1 % 3 != 0) continue;
      if (dp == 12 && sizes.z1 == dp) continue;
      ASSERT_TRUE(results.fit({.sizes = sizes}));
      ASSERT_TRUE(results.fit(random_variant(random, sizes, 1)));
    }
    EXPECT_EQ(results.count(), 1U);
  }
}

TEST(ZeroGroupsOfThree, OfStatesChangeNoBitOfSeveralMicroBatches) {
  Random random(9);
  ResultClasses results(toy_moe(), 6);
  for (const ZeroSizes& sizes : all_zero_sizes(6)) {
    ZeroVariant v = random_variant(random, sizes, 2);
    v.micro_batches = 2;
    ASSERT_TRUE(results.fit(v));
    ASSERT_TRUE(results.fit({.sizes = sizes, .micro_batches = 2}));
  }
  EXPECT_EQ(results.count(), 4U);  // z2 = 1, 2, 3 and 6
}

TEST(ZeroGroupsOfThree, AreThoseOfOneRankAlone) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{3, 1, 1}, {3, 1, 3}, {6, 6, 3}, {6, 2, 6}}) {
    SCOPED_TRACE(to_string(sizes));
    expect_result_of_one_rank(zero_plan(toy_moe(), 6, {.sizes = sizes}));
  }
}

TEST(ZeroGroupsOfThree, OfGradientsShowInSumsThatAreNotExact) {
  ResultClasses results(toy_model(), 6);
  for (const ZeroSizes& sizes : all_zero_sizes(6))
    if (splits_the_tree(sizes.z2, 6)) {
      ASSERT_TRUE(results.fit({.sizes = sizes}));
    }
  EXPECT_EQ(results.count(), 1U);
  EXPECT_NE(zero_digest(toy_model(), 6, {.sizes = {6, 3, 3}}),
            zero_digest(toy_model(), 6, {.sizes = {6, 2, 2}}));
}

TEST(ZeroNarrow, ParametersGiveOneResult) {
  Random random(3);
  ResultClasses results(toy_moe(), 8);
  for (const ZeroSizes& sizes : all_zero_sizes(8)) {
    ZeroVariant v = random_variant(random, sizes, 1);
    v.parameters = DType::kBf16;
    ASSERT_TRUE(results.fit(v));
  }
  EXPECT_EQ(results.count(), 1U);
}

// Every intermediate sum is rounded: one result for the same groups.
TEST(ZeroNarrow, WiresGiveOneResultForTheSameGroups) {
  Random random(4);
  ResultClasses results(toy_moe(), 4);
  for (const ZeroSizes& sizes : all_zero_sizes(4))
    for (int again = 0; again < 2; ++again) {
      ZeroVariant v = random_variant(random, sizes, 2);
      v.wire = DType::kBf16;
      ASSERT_TRUE(results.fit(v));
    }
}

// A forward pass without gradients, as in an evaluation.
TEST(ZeroForward, AloneChangesNothing) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{4, 4, 4}, {4, 2, 2}, {4, 4, 1}, {4, 1, 1}}) {
    Trial trial{.plan = zero_plan(toy_model(), 4, {.sizes = sizes})};
    const TrialResult expected = run_trial(trial);
    trial.set_parameters = [](Runtime& runtime) {
      const std::vector<int32_t> modules = modules_of(runtime);
      runtime.begin_iteration(modules, 0);
      for (const int32_t module : modules) {
        runtime.wait_params(module);
        runtime.release_params(module);
      }
    };
    const TrialResult got = run_trial(trial);
    EXPECT_EQ(got.parameters, expected.parameters);
    EXPECT_EQ(got.states, expected.states);
  }
}

// Like run_trial, but gradients are overwritten and never zeroed: the first
// micro-batch of a step ignores what its memory holds.
std::string digest_of_written(Trial trial) {
  std::set<std::pair<int, int32_t>> written;
  std::mutex mutex;
  trial.poison = [&](Runtime& runtime, int64_t, int32_t tensor,
                     std::span<float>) {
    // Asking for a gradient may wait for other ranks.
    const std::span<float> gradient = runtime.gradient(tensor);
    const std::lock_guard lock(mutex);
    if (written.emplace(runtime.coordinates().rank, tensor).second)
      std::ranges::fill(gradient, 0.0F);
  };
  std::string digest;
  run_ranks(trial.plan.mesh.world(), trial.ranks, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(trial.plan, world, *engine, trial.options);
    set_initial_parameters(runtime);
    for (int64_t step = 1; step <= trial.steps; ++step) {
      make_gradients(runtime, *engine, trial, step);
      runtime.step(
          {.learning_rate = trial.learning_rate,
           .gradient_factor = gradient_factor(trial.gradients, trial.plan.mesh),
           .clip_norm = trial.clip_norm});
      world.barrier();
      if (world.rank() == 0) written.clear();
      world.barrier();
    }
    const std::string mine =
        runtime.parameter_digest() + runtime.state_digest();
    if (world.rank() == 0) digest = mine;
  });
  return digest;
}

void expect_written_as_added(const Model& model, int32_t dp,
                             const ZeroVariant& v) {
  SCOPED_TRACE(to_string(v));
  Witness witness;
  Trial trial = zero_trial(model, dp, v, witness);
  trial.poison = {};
  const TrialResult added = run_trial(trial);
  EXPECT_EQ(digest_of_written(trial), added.parameters + added.states);
}

TEST(ZeroWritten, GradientsNeedNoZeros) {
  Random random(21);
  for (const int micro_batches : {1, 3})
    for (const ZeroSizes& sizes : all_zero_sizes(4)) {
      ZeroVariant v = random_variant(random, sizes, 2);
      v.micro_batches = micro_batches;
      expect_written_as_added(toy_moe(), 4, v);
    }
}

TEST(ZeroWritten, GradientsOfExpertsNeedNoZeros) {
  for (const ZeroSizes& experts : all_zero_sizes(2))
    expect_written_as_added(
        toy_moe(), 2,
        {.sizes = {4, 2, 2}, .ep = 2, .experts = experts, .micro_batches = 2});
}

TEST(ZeroWritten, GradientsBesideFrozenOnesNeedNoZeros) {
  Model model = toy_moe();
  freeze(model, {"*norm*", model.tensors.front().name, "layers.0.*"});
  for (const ZeroSizes& sizes : std::vector<ZeroSizes>{{4, 4, 4}, {4, 2, 1}})
    expect_written_as_added(model, 4, {.sizes = sizes, .micro_batches = 2});
}

// The gradients are the same in every step, but the second step has them for
// one module only; those of the others from the first step are dropped.
TEST(ZeroWritten, ModulesWithoutGradientsCountAsZeros) {
  const Plan plan = zero_plan(toy_model(), 4, {.sizes = {4, 4, 1}});
  run_ranks(4, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});
    std::vector<double> norms;
    for (const int32_t num_tensors : {12, 1, 12}) {
      for (int32_t t = num_tensors - 1; t >= 0; --t) {
        std::ranges::fill(runtime.gradient(t), 1.0F);
        runtime.grad_ready(t);
      }
      norms.push_back(runtime
                          .step({.learning_rate = 0.01,
                                 .gradient_factor = 0.25,
                                 .wants_norm = true})
                          .gradient_norm);
    }
    double elements = 0;
    for (const Tensor& tensor : plan.model.tensors)
      elements += static_cast<double>(tensor.elements());
    const double whole = std::sqrt(elements);
    EXPECT_NEAR(norms[0], whole, 1e-6 * whole);
    EXPECT_NEAR(norms[1], 32.0, 1e-6 * whole);  // of 64 x 16 ones
    EXPECT_NEAR(norms[2], whole, 1e-6 * whole);
  });
}

TEST(ZeroRefuses, WhatAStrategyCannotDo) {
  for (const std::string strategy : {"replicated", "layerwise"}) {
    EXPECT_THROW(
        zero_plan(toy_model(), 4, {.sizes = {4, 2, 1}, .strategy = strategy}),
        UsageError);
    EXPECT_THROW(zero_plan(toy_model(), 4,
                           {.sizes = {4, 2, 2},
                            .strategy = strategy,
                            .replica_sum = ReplicaSum::kAllReduce}),
                 UsageError);
  }
  EXPECT_THROW(zero_plan(toy_model(), 4, {.sizes = {3, 1, 1}}), UsageError);
  EXPECT_THROW(zero_plan(toy_model(), 6, {.sizes = {6, 2, 3}}), UsageError);
}

// The digest detects a tiny change in one element of one slice.
TEST(ZeroDigest, NoticesTheSmallestDifference) {
  const Plan plan = zero_plan(toy_model(), 4, {.sizes = {4, 2, 4}});
  const int32_t qkv = 2;
  const TrialResult right = run_trial({.plan = plan, .steps = 1});
  Trial other{.plan = plan, .steps = 1};
  other.set_parameters = [&](Runtime& runtime) {
    std::vector<float> shard(static_cast<size_t>(runtime.shard_elements(qkv)));
    make_parameter(plan.model.tensors[qkv], 1, 0, shard);
    shard[3] = std::nextafter(shard[3], 1.0F);
    runtime.set_parameter(qkv, shard);
  };
  EXPECT_NE(run_trial(other).parameters, right.parameters);
}

}  // namespace
}  // namespace canzona::runtime::zero_exactness_test

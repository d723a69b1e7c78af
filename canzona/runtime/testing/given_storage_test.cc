// The storage of a plan of our own, given from outside: whoever made the
// storage, the same gradients give the same weights and states.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "canzona/plan/storage/storage_plan.h"
#include "canzona/runtime/caller/test_caller.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_states.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::given_storage_test {
namespace {

using Whole = std::map<std::string, std::vector<uint32_t>>;  // bits by name

// What ranks of a runtime store and, at the end, hold.
struct OwnRun {
  std::vector<std::map<std::string, std::vector<Box>>> stored;  // by rank
  WholeStates states;
  std::mutex mutex;
};

void run_own(const Plan& plan, int steps, OwnRun& run) {
  run.stored.resize(index(plan.mesh.world()));
  Trial trial{.plan = plan, .steps = steps};
  trial.at_end = [&](Runtime& runtime) {
    run.states.collect(runtime);
    std::map<std::string, std::vector<Box>> boxes;
    runtime.for_each_state([&](const RankState& state) {
      if (state.state.empty())
        boxes[state.owner].push_back({state.first, state.count});
    });
    const std::scoped_lock lock(run.mutex);
    run.stored[index(runtime.coordinates().rank)] = std::move(boxes);
  };
  run_trial(trial);
}

StorageRequest given(const Plan& plan, const OwnRun& run) {
  StorageRequest request;
  request.world = plan.mesh.world();
  request.groups = {{plan.rule, plan.rule_options}, {"adamw", {}}};
  request.options.capacity_bytes = plan.options.capacity_bytes;
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    CutTensor& out = request.tensors.emplace_back();
    out.name = tensor.name;
    out.shape = tensor.shape;
    const int32_t first = plan.first_matrix[t], end = plan.first_matrix[t + 1];
    out.group = first < end ? 0 : 1;
    if (end - first > 1)
      for (int32_t m = first; m < end; ++m)
        out.splits.push_back(plan.matrices[index(m)].rows);
    for (const auto& stored : run.stored) {
      const auto found = stored.find(tensor.name);
      out.stored.push_back(found == stored.end() ? std::vector<Box>{}
                                                 : found->second);
    }
  }
  return request;
}

// The mean gradient of a step, which is exact in any order of addition.
std::vector<float> mean_gradient(const Plan& plan, int32_t t, int64_t step) {
  const Tensor& tensor = plan.model.tensors[index(t)];
  const int32_t homes = ep_of(plan.mesh, plan.model, tensor) < 0
                            ? plan.mesh.homes()
                            : plan.mesh.expert_homes();
  std::vector<float> sum(index(tensor.elements())), one(sum.size());
  for (int32_t home = 0; home < homes; ++home) {
    make_gradient({GradientKind::kExact, home, homes, step}, tensor, 1, 0, one);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  const auto factor =
      static_cast<float>(gradient_factor(GradientKind::kExact, plan.mesh));
  for (float& g : sum) g *= factor;
  return sum;
}

Whole run_given(const Plan& plan, const OwnRun& run, int steps) {
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<std::vector<float>>> gradients(index(steps) + 1);
  for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t) {
    const Tensor& tensor = plan.model.tensors[index(t)];
    make_parameter(tensor, 1, 0,
                   weights.emplace_back(index(tensor.elements())));
    for (int64_t step = 1; step <= steps; ++step)
      gradients[index(step)].push_back(mean_gradient(plan, t, step));
  }
  CallerTrial trial{.plan = make_storage_plan(given(plan, run)),
                    .steps = steps};
  trial.weight = [&](int32_t t, int64_t i) {
    return weights[index(t)][index(i)];
  };
  trial.gradient = [&](int32_t t, int64_t step, int64_t i) {
    return gradients[index(step)][index(t)][index(i)];
  };
  return run_caller(trial).values;
}

// "optim/momentum/w" is "momentum of w" there, and an owner's state also says
// which matrix of a stack, from which row on.
Whole::const_iterator find(const Whole& there, const std::string& name) {
  std::string other = name.substr(name.find('/') + 1);
  if (name.starts_with("optim/")) other.replace(other.find('/'), 1, " of ");
  const auto found = there.find(other);
  return found != there.end() ? found : there.find(other + " 0 0");
}

void expect_same(const Plan& plan, int steps) {
  OwnRun own;
  run_own(plan, steps, own);
  const Whole there = run_given(plan, own, steps);
  EXPECT_EQ(own.states.tensors().size(), there.size());
  for (const auto& [name, whole] : own.states.tensors()) {
    const auto found = find(there, name);
    ASSERT_NE(found, there.end()) << name;
    EXPECT_EQ(found->second, bits_of(whole.values)) << name;
  }
}

class GivenStorage : public testing::TestWithParam<std::string> {
 protected:
  PlanWish wish(const std::string& mesh) const {
    return {.mesh = mesh, .rule = GetParam(), .options = quick(GetParam())};
  }
};

TEST_P(GivenStorage, GivesTheSameOnEveryMeshAndStrategy) {
  for (const std::string& mesh : many_meshes())
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      PlanWish wanted = wish(mesh);
      wanted.strategy = strategy;
      expect_same(small_plan(toy_moe(1), wanted), 4);
    }
}

TEST_P(GivenStorage, GivesTheSameForEveryZero) {
  for (const std::string mesh : {"dp=4", "dp=4,tp=2", "dp=2,ep=2"})
    for (const std::string zero :
         {"none", "zero2", "zero3", "replica:2", "hier:2"}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      PlanWish wanted = wish(mesh);
      wanted.zero = zero;
      expect_same(small_plan(toy_moe(1), wanted), 4);
    }
}

INSTANTIATE_TEST_SUITE_P(Rules, GivenStorage,
                         testing::Values("muon", "soap", "shampoo"));

}  // namespace
}  // namespace canzona::runtime::given_storage_test

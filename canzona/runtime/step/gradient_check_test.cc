// Gradients that are not finite, the global norm, clipping, groups of tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::gradient_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t tensor_named(const Model& model, const std::string& name) {
  for (size_t t = 0; t < model.tensors.size(); ++t)
    if (model.tensors[t].name == name) return static_cast<int32_t>(t);
  ADD_FAILURE() << name;
  return 0;
}

class EveryStrategy : public testing::TestWithParam<std::string> {};

// The bad value must be written before its gradient is announced, so `poison`
// runs while the gradients are made.
TEST_P(EveryStrategy, SkipsAStepWithAValueThatIsNotFinite) {
  const Model model = toy_moe();
  for (const std::string mesh : {"dp=3", "tp=2", "dp=2,ep=2,tp=2"}) {
    const Plan plan = small_plan(model, {.mesh = mesh, .strategy = GetParam()});
    const TrialResult untouched = run_trial({.plan = plan, .steps = 2});
    for (const float bad : {kNan, kInf, -kInf})
      for (const std::string name : {"layers.1.fc2", "layers.0.norm", "head"}) {
        SCOPED_TRACE(cat(mesh, " ", name, " ", bad));
        const int32_t tensor = tensor_named(model, name);
        const int culprit = plan.mesh.world() - 1;
        const TrialResult result =
            run_trial({.plan = plan,
                       .steps = 3,
                       .poison = [&](Runtime& runtime, int64_t step, int32_t t,
                                     std::span<float> gradient) {
                         if (step == 2 && t == tensor &&
                             runtime.coordinates().rank == culprit)
                           gradient.back() = bad;
                       }});
        EXPECT_FALSE(result.outcomes[0].skipped);
        EXPECT_TRUE(result.outcomes[1].skipped);
        EXPECT_EQ(result.outcomes[1].nonfinite_tensor, name);
        EXPECT_EQ(result.outcomes[1].nonfinite_rank, culprit);
        EXPECT_FALSE(result.outcomes[2].skipped);
        const TrialResult same = run_trial(
            {.plan = plan, .steps = 2, .number_of_step = [](int64_t step) {
               return step == 2 ? 3 : step;
             }});
        EXPECT_EQ(result.parameters, same.parameters);
        EXPECT_EQ(result.states, same.states);
      }
  }
}

// Every rank's gradient is finite, their sum is not.
TEST_P(EveryStrategy, SkipsAStepWhoseSumOverflows) {
  const Model model = toy_model();
  const int32_t tensor = tensor_named(model, "layers.0.qkv");
  const TrialResult result = run_trial(
      {.plan = small_plan(model, {.mesh = "dp=2,tp=2", .strategy = GetParam()}),
       .steps = 1,
       .poison = [&](Runtime&, int64_t, int32_t t, std::span<float> gradient) {
         if (t == tensor) gradient[5] = std::numeric_limits<float>::max();
       }});
  EXPECT_TRUE(result.outcomes[0].skipped);
  EXPECT_EQ(result.outcomes[0].nonfinite_tensor, "layers.0.qkv");
  EXPECT_EQ(result.outcomes[0].nonfinite_rank, -1);
}

// Compared with a sum in fp64 over whole tensors.
TEST_P(EveryStrategy, HasTheNormOfTheWholeGradient) {
  const Model model = toy_moe();
  double squares = 0;
  for (const Tensor& tensor : model.tensors) {
    std::vector<float> gradient(static_cast<size_t>(tensor.elements()));
    make_gradient({}, tensor, 1, 0, gradient);
    for (const double g : gradient) squares += g / 28 * (g / 28);
  }
  for (const std::string& mesh : many_meshes()) {
    SCOPED_TRACE(mesh);
    const TrialResult result = run_trial(
        {.plan = small_plan(model, {.mesh = mesh, .strategy = GetParam()}),
         .steps = 1,
         .clip_norm = 1e9});
    EXPECT_NEAR(result.outcomes[0].gradient_norm / std::sqrt(squares), 1, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryStrategy,
                         testing::ValuesIn(strategy_names()),
                         [](const auto& of) { return of.param; });

// A clipped step is the step of a smaller gradient. NSGD without momentum is
// invariant under scaling, so the test looks at AdamW's first moment through
// the state digest.
TEST(Clipping, ScalesTheGradientBeforeTheRule) {
  const Plan plan = small_plan(toy_model(), {.mesh = "dp=2", .rule = "adamw"});
  const TrialResult free =
      run_trial({.plan = plan, .steps = 1, .clip_norm = 1e9});
  const double norm = free.outcomes[0].gradient_norm;
  const TrialResult loose =
      run_trial({.plan = plan, .steps = 1, .clip_norm = norm * 1.001});
  const TrialResult tight =
      run_trial({.plan = plan, .steps = 1, .clip_norm = norm * 0.5});
  EXPECT_EQ(loose.states, free.states);
  EXPECT_NE(tight.states, free.states);
  EXPECT_EQ(tight.outcomes[0].gradient_norm, norm);
}

TEST(ParameterGroups, DecayAndLearnAsTheirGroupSays) {
  const Model model = toy_model();
  const Plan plan = small_plan(model, {.mesh = "dp=2,tp=2"});
  const int32_t t = tensor_named(model, "layers.0.norm");
  const auto norm_after = [&](const std::vector<ParameterGroup>& groups) {
    std::vector<float> norm(16);
    run_trial(
        {.plan = plan,
         .steps = 2,
         .options = {.adamw = {{"weight_decay", "0.5"}}, .groups = groups},
         .at_end = [&](Runtime& runtime) {
           if (runtime.coordinates().rank == 0) runtime.get_parameter(t, norm);
         }});
    return norm;
  };
  const auto decayed = norm_after({});
  const auto free = norm_after({{"*norm", 0.0}});
  const auto frozen = norm_after({{"layers.?.norm", {}, 0.0}, {"*", 0.0}});
  EXPECT_NE(decayed, free);
  std::vector<float> initial(16);
  make_parameter(model.tensors[static_cast<size_t>(t)], 1, 0, initial);
  EXPECT_EQ(frozen, initial);
  EXPECT_NE(free, initial);
}

template <class Error>
std::string complaint(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ParameterGroups, ThatFitNothingAreRefused) {
  EXPECT_THAT(complaint<UsageError>([] {
                run_trial({.plan = small_plan(toy_model(), PlanWish{}),
                           .options = {.groups = {{"bias*", 0.0}}}});
              }),
              HasSubstr("'bias*' matches no tensor"));
}

TEST(Ranks, D2WithDifferentPlansAreRefusedWithBothDigests) {
  const Plan one = small_plan(toy_model(), {.mesh = "dp=2"});
  const Plan other =
      small_plan(toy_model(), {.mesh = "dp=2", .strategy = "contiguous"});
  EXPECT_THAT(complaint<UsageError>([&] {
                run_ranks(2, [&](Communicator& world) {
                  const auto engine = make_cpu_engine();
                  Runtime runtime(world.rank() == 0 ? one : other, world,
                                  *engine, {});
                });
              }),
              AllOf(HasSubstr("holds plan"), HasSubstr(one.digest),
                    HasSubstr(other.digest)));
}

TEST(Ranks, OfAnotherNumberAreRefused) {
  const Plan plan = small_plan(toy_model(), {.mesh = "dp=2"});
  EXPECT_THAT(complaint<UsageError>([&] {
                run_ranks(3, [&](Communicator& world) {
                  const auto engine = make_cpu_engine();
                  Runtime runtime(plan, world, *engine, {});
                });
              }),
              HasSubstr("the plan is for 2 ranks (dp=2), but there are 3"));
}

TEST(Gradients, AnnouncedTwiceAreRefused) {
  EXPECT_THAT(complaint<UsageError>([] {
                run_trial({.plan = small_plan(toy_model(), {.mesh = "dp=2"}),
                           .before_step = [](Runtime& runtime, int64_t) {
                             runtime.grad_ready(0);
                           }});
              }),
              HasSubstr("'embedding' was announced twice"));
}

// Gradients that were never announced count as zeros.
TEST(Gradients, NeverAnnouncedAreZeros) {
  const Plan plan = small_plan(toy_model(), {.mesh = "dp=2,tp=2"});
  const auto run = [&](bool announces) {
    return run_trial({.plan = plan,
                      .steps = 3,
                      .poison =
                          [&](Runtime&, int64_t, int32_t t,
                              std::span<float> gradient) {
                            if (t != 3) return;
                            std::fill(gradient.begin(), gradient.end(), 0.0F);
                          },
                      .skip_announcement =
                          [&](int32_t t) { return t == 3 && !announces; }})
        .parameters;
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace canzona::runtime::gradient_check_test

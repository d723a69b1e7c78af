// Calls in the wrong order are reported as the caller's mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_usage_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int32_t kHead = 3;  // of two layers

// Runs `body` on two ranks that cut everything.
void on_ranks(const std::function<void(Runtime&)>& body,
              ZeroVariant variant = {.sizes = {2, 2, 2}}) {
  const Plan plan = zero_plan(toy_model(), 2, variant);
  run_ranks(2, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {.overlap = variant.overlap});
    set_initial_parameters(runtime);
    body(runtime);
  });
}

// Expects a rank's error about its own mistake: an error from the other rank
// may arrive first and end it.
void expect_usage_error(const std::function<void(Runtime&)>& body,
                        const std::string& words,
                        const ZeroVariant& variant = {.sizes = {2, 2, 2}}) {
  EXPECT_THAT([&] { on_ranks(body, variant); },
              ThrowsMessage<UsageError>(HasSubstr(words)));
}

TEST(ZeroUsage, InOrderIsFine) {
  on_ranks([](Runtime& r) {
    r.begin_iteration(std::vector<int32_t>{0, 1, 1}, 1);
    for (const int32_t module : {0, 1, 1}) {
      r.wait_params(module);
      r.release_params(module);
    }
  });
}

TEST(ZeroUsage, WaitingOutOfOrder) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0, 1, 2}, 1);
        r.wait_params(2);
      },
      "wait_params: layer 1, but the next use announced by begin_iteration is "
      "embedding");
}

TEST(ZeroUsage, WaitingMoreOftenThanSaid) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0}, 1);
        r.wait_params(0);
        r.release_params(0);
        r.wait_params(0);
      },
      "all uses announced by begin_iteration are over");
  expect_usage_error([](Runtime& r) { r.wait_params(0); },
                     "all uses announced by begin_iteration are over");
}

TEST(ZeroUsage, ReleasingTwice) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0, 1}, 1);
        r.wait_params(0);
        r.release_params(0);
        r.release_params(0);
      },
      "release_params: embedding is not in use");
}

TEST(ZeroUsage, WaitingTwiceWithoutARelease) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{1, 1}, 1);
        r.wait_params(1);
        r.wait_params(1);
      },
      "wait_params: layer 0 is in use");
}

// No other thread could free a slot.
TEST(ZeroUsage, HoldingMoreModulesThanThereAreSlots) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0, 1, 2}, 1);
        r.wait_params(0);
        r.wait_params(1);
        r.wait_params(2);
      },
      "wait_params: layer 1, but 2 modules are in use and there are 2 slots",
      {.sizes = {2, 2, 2}, .prefetch = 1});
}

TEST(ZeroUsage, ParametersOutsideOfAUse) {
  const auto look = [](Runtime& r) { r.parameter(0); };
  expect_usage_error(look, "'embedding' is used outside wait_params");
  expect_usage_error(
      [&](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0}, 1);
        r.wait_params(0);
        r.parameter(0);
        r.release_params(0);
        look(r);
      },
      "'embedding' is used outside wait_params");
}

TEST(ZeroUsage, AStepThatBeginsWhileUsesAreLeft) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0, 1}, 1);
        r.wait_params(0);
        r.release_params(0);
        r.begin_iteration(std::vector<int32_t>{0, 1}, 1);
      },
      "begin_iteration: 1 uses of the previous step were not released");
}

TEST(ZeroUsage, AnUpdateWhileUsesAreLeft) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration(std::vector<int32_t>{0, 1}, 1);
        r.wait_params(0);
        r.release_params(0);
        r.step({.learning_rate = 0.01});
      },
      "step: 1 uses of modules were not released");
}

TEST(ZeroUsage, ModulesThatTheRankDoesNotHave) {
  for (const int32_t module : {-1, kHead + 1}) {
    const std::string words = cat("has no module ", module);
    expect_usage_error(
        [=](Runtime& r) { r.begin_iteration(std::vector<int32_t>{module}, 1); },
        words);
    expect_usage_error([=](Runtime& r) { r.wait_params(module); }, words);
    expect_usage_error([=](Runtime& r) { r.release_params(module); }, words);
  }
}

TEST(ZeroUsage, AnnouncingTooOften) {
  for (const ZeroSizes& sizes : std::vector<ZeroSizes>{{2, 2, 1}, {2, 1, 1}})
    for (const int64_t micro_batches : {1, 2}) {
      SCOPED_TRACE(cat(to_string(sizes), " ", micro_batches));
      const auto announce = [=](Runtime& r) {
        r.begin_iteration({}, micro_batches);
        for (int64_t i = 0; i <= micro_batches; ++i) r.grad_ready(0);
      };
      expect_usage_error(announce, "the gradient of 'embedding' was announced",
                         {.sizes = sizes});
    }
}

// One micro-batch, and a second announcement of one of two tensors.
TEST(ZeroUsage, AnnouncingOneTensorTwiceInAMicroBatch) {
  expect_usage_error(
      [](Runtime& r) {
        r.begin_iteration({}, 2);
        r.grad_ready(1);
        r.grad_ready(1);
      },
      "'layers.0.proj' was announced", {.sizes = {2, 2, 1}});
}

// Compute that begins more modules than there are slots would wait for itself.
TEST(ZeroUsage, BeginningMoreGradientsThanThereAreSlots) {
  expect_usage_error(
      [](Runtime& r) {
        r.gradient(0);
        r.gradient(1);
      },
      "1 modules are in progress and there are 1 slots",
      {.sizes = {2, 2, 1}, .prefetch = 0});
}

// If parameters are whole, uses need not be announced.
TEST(ZeroUsage, WithoutBeginStepThereIsOneMicroBatch) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{2, 2, 1}, {2, 1, 1}, {1, 1, 1}})
    on_ranks(
        [](Runtime& r) {
          for (int step = 0; step < 3; ++step) {
            for (int32_t t = 0; r.holds(0) && t < 12; ++t) {
              r.gradient(t)[0] += 1;
              r.grad_ready(t);
            }
            EXPECT_FALSE(r.step({.learning_rate = 0.01}).skipped);
            r.zero_gradients();
          }
        },
        {.sizes = sizes, .prefetch = 0});
}

}  // namespace
}  // namespace canzona::runtime::zero_usage_test

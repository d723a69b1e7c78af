// The runtime on asynchronous engines: ordering that it forgets shows in the
// results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/runtime/testing/test_lane_groups.h"
#include "canzona/runtime/testing/test_late_trial.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"
#include "canzona/runtime/zero/test_zero_classes.h"

namespace canzona::runtime::late_device_test {
namespace {

// As late as possible, and at random.
const std::vector<LateDevice::Options> kDevices = {
    {.seed = 1, .eagerness = 0},
    {.seed = 2, .eagerness = 0.5},
    {.seed = 3, .eagerness = 0.95}};

void expect_result_of_cpu(LateTrial trial) {
  trial.device.reset();
  const std::string right = run_late_trial(trial);
  for (const LateDevice::Options& device : kDevices) {
    trial.device = device;
    ASSERT_EQ(run_late_trial(trial), right) << "eagerness " << device.eagerness;
  }
}

TEST(LateDevice, DoesNothingUntilSomebodyWaits) {
  LateDevice device;
  LateEngine engine(device);
  EngineMemory memory(engine);
  const auto numbers = memory.put(std::vector<float>{1, 2, 3});
  const auto* third = reinterpret_cast<const float*>(numbers.data) + 2;
  engine.scale(numbers, 2, 3);
  EXPECT_EQ(*third, 3);
  engine.synchronize();
  EXPECT_EQ(*third, 6);
}

TEST(LateGroups, GiveTheSumsOfTheTree) {
  for (const LateDevice::Options& options : kDevices) {
    LateDevice device(options);
    for (const bool checked : {false, true})
      check_lane_groups([&] { return std::make_unique<LateEngine>(device); },
                        checked);
  }
}

TEST(LateGroups, AddIntegersWhereTheyLie) {
  LateDevice device;
  run_ranks(5, [&](Communicator& world) {
    LateEngine engine(device);
    LaneRank rank(world, engine);
    EngineMemory memory(engine);
    auto* words = memory.arena().take_array<uint64_t>(2);
    const std::array<uint64_t, 2> own = {~uint64_t{0} - 4,
                                         static_cast<uint64_t>(world.rank())};
    engine.upload(reinterpret_cast<std::byte*>(words),
                  reinterpret_cast<const std::byte*>(own.data()), 16);
    const std::span<std::byte> data(reinterpret_cast<std::byte*>(words), 16);
    rank.settle();
    rank.wait(rank.courier().all_reduce(Reduction::kInt64Sum, data));
    EXPECT_EQ(memory.get<uint64_t>(data.data(), 2),
              (std::vector<uint64_t>{~uint64_t{0} - 24, 10}));
    rank.wait(
        rank.courier().all_reduce(Reduction::kInt64Max, data.subspan(8, 8)));
    EXPECT_EQ(memory.get<uint64_t>(data.data() + 8, 1)[0], 10U);
  });
}

TEST(LateGroups, TellWhoDoesNotCome) {
  LateDevice device;
  RunOptions options;
  options.communicator.deadline = std::chrono::milliseconds(300);
  const auto message = [&](bool throws) -> std::string {
    try {
      run_ranks(3, options, [&](Communicator& world) {
        LateEngine engine(device);
        LaneRank rank(world, engine);
        if (world.rank() == 1 && throws) throw UsageError("no more memory");
        const auto data = rank.put(std::vector<float>(50, 1));
        Work work;
        if (world.rank() != 1)
          work = rank.courier().all_reduce(Reduction::kFp32Sum, data,
                                           {.label = "layers.3"});
        else
          std::this_thread::sleep_for(std::chrono::seconds(1));
        rank.wait(work);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(true), "no more memory");
  EXPECT_THAT(message(false),
              testing::AllOf(testing::HasSubstr("'layers.3'"),
                             testing::HasSubstr("rank 1 did not arrive")));
}

class LateRule : public testing::TestWithParam<std::string> {};

TEST_P(LateRule, GivesTheResultOfTheCpuOverStrategies) {
  for (const std::string mesh : {"dp=1", "dp=4", "dp=2,tp=2"})
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      expect_result_of_cpu(
          {.plan = small_plan(toy_moe(), {.mesh = mesh,
                                          .strategy = strategy,
                                          .rule = GetParam(),
                                          .options = quick(GetParam())}),
           .steps = 4});
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Runtime, LateRule,
                         testing::Values("muon", "adamw", "shampoo", "soap"),
                         [](const auto& of) { return of.param; });

TEST_P(LateRule, GivesTheResultOfTheCpuOnADeviceWithTheDefaultsAlone) {
  for (const std::string mesh : {"dp=1", "dp=2,tp=2"})
    for (const double clip_norm : {0.0, 0.5}) {
      LateTrial trial{
          .plan = small_plan(
              toy_moe(),
              {.mesh = mesh, .rule = GetParam(), .options = quick(GetParam())}),
          .steps = 4,
          .clip_norm = clip_norm};
      trial.poison = [](const Coordinates&, int64_t step, int32_t tensor,
                        std::span<float> gradient) {
        if (step == 3 && tensor == 1 && !gradient.empty())
          gradient[0] = std::numeric_limits<float>::infinity();
      };
      const std::string right = run_late_trial(trial);
      trial.defaults_alone = true;
      EXPECT_EQ(run_late_trial(trial), right) << mesh << " " << clip_norm;
    }
}

// All sizes, rules and routes, in the smallest possible pools and in larger
// ones.
void expect_random_variants(uint64_t seed, const Model& model, int32_t dp,
                            int num_trials, int32_t most) {
  Random random(seed);
  const std::vector<ZeroSizes> all = all_zero_sizes(dp);
  for (int trial = 0; trial < num_trials; ++trial) {
    ZeroVariant v = random_variant(random, random.pick(all), most);
    v.link = false;
    v.rule = random.pick<std::string>({"muon", "adamw", "shampoo", "soap"});
    v.prefetch = random.pick<int32_t>({0, 0, 1, 5});
    if (random.coin()) v.parameters = DType::kBf16;
    if (v.parameters == DType::kBf16 && random.coin())
      v.master = MasterForm::kRemainder;
    if (random.coin()) v.wire = DType::kBf16;
    SCOPED_TRACE(to_string(v));
    expect_result_of_cpu({.plan = zero_plan(model, dp, v),
                          .options = {.wire = v.wire, .overlap = v.overlap},
                          .steps = 4,
                          .micro_batches = random.small(1, 3)});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(LateZero, GivesTheResultOfTheCpuHoweverThingsTravel) {
  expect_random_variants(1, toy_moe(), 1, 3, 2);
  expect_random_variants(2, toy_model(), 2, 6, 2);
  expect_random_variants(3, toy_moe(), 4, 8, 2);
  expect_random_variants(4, toy_model(), 8, 6, 1);
  expect_random_variants(5, thin_model(), 4, 4, 1);
}

TEST(LateZero, GivesTheResultOfTheCpuWithExpertsOfTheirOwn) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{4, 1, 1}, {4, 4, 4}, {4, 2, 4}}) {
    const ZeroVariant v{
        .sizes = sizes, .prefetch = 0, .ep = 2, .experts = {2, 2, 2}};
    SCOPED_TRACE(to_string(v));
    expect_result_of_cpu(
        {.plan = zero_plan(toy_moe(), 2, v), .micro_batches = 2});
    if (HasFatalFailure()) return;
  }
}

TEST(LateZero, GivesTheResultOfTheCpuWithoutOverlap) {
  for (const std::string mesh : {"dp=2,tp=2", "dp=4,tp=2"})
    expect_result_of_cpu(
        {.plan = small_plan(toy_moe(), {.mesh = mesh}),
         .options = {.pipelined = false, .overlap = Overlap::kNone}});
}

TEST(LateTeams, GiveTheResultOfWholeOwnersOnTheCpu) {
  for (const auto& [form, mesh] :
       {std::pair<std::string, std::string>{"gram", "dp=2,tp=4"},
        {"gram", "tp=8"},
        {"symmetric", "tp=2"}}) {
    const auto plan_of = [&](const TeamSizeOf& size) {
      return team_plan(mesh, strips(8, form), size);
    };
    LateTrial trial{.plan = plan_of([](size_t) { return 1; }), .steps = 4};
    const std::string right = run_late_trial(trial);
    const int32_t sizes[] = {8, 2, 4, 1, 2, 8};
    for (const int32_t size : {2, 4, 8, 0})
      for (const LateDevice::Options& device : kDevices) {
        SCOPED_TRACE(cat(form, " ", mesh, " teams of ", size, " eagerness ",
                         device.eagerness));
        trial.plan = plan_of([&](size_t m) {
          return size != 0 ? size : sizes[m % std::size(sizes)];
        });
        trial.options.pipelined = size != 8;
        trial.device = device;
        ASSERT_EQ(run_late_trial(trial), right);
      }
  }
}

// Heads wait for decompositions, members for what was found.
TEST(LateTeams, OfSoapGiveTheResultOfWholeOwnersOnTheCpu) {
  for (const std::string mesh : {"dp=2,tp=4", "tp=2"}) {
    const auto plan_of = [&](const TeamSizeOf& size) {
      return soap_team_plan(mesh, one_factor(8), size);
    };
    LateTrial trial{.plan = plan_of([](size_t) { return 1; }), .steps = 5};
    const std::string right = run_late_trial(trial);
    for (const int32_t size : {2, 4})
      for (const LateDevice::Options& device : kDevices) {
        SCOPED_TRACE(
            cat(mesh, " teams of ", size, " eagerness ", device.eagerness));
        trial.plan = plan_of([&](size_t) { return size; });
        trial.device = device;
        ASSERT_EQ(run_late_trial(trial), right);
      }
  }
}

// Owners wait for their helpers.
TEST(LateTeams, WithHelpersGiveTheResultOfWholeOwnersOnTheCpu) {
  for (const std::string rule : {"soap", "shampoo"}) {
    const auto plan_of = [&](bool helped) {
      return helper_plan("dp=2,tp=2", helped, {}, "zero1", rule);
    };
    LateTrial trial{.plan = plan_of(false), .steps = 7};
    const std::string right = run_late_trial(trial);
    trial.plan = plan_of(true);
    for (const LateDevice::Options& device : kDevices) {
      SCOPED_TRACE(cat(rule, " eagerness ", device.eagerness));
      trial.device = device;
      ASSERT_EQ(run_late_trial(trial), right);
    }
  }
}

TEST(LateTeams, GiveTheResultOfTheCpuInHomesOfPlaces) {
  PlanWish wish{.mesh = "dp=4", .options = strips(8), .zero = "hier:4"};
  wish.capacity_bytes = 60'000;  // several rounds
  expect_result_of_cpu(
      {.plan = share_matrices(small_plan(shared_model(), wish),
                              [](size_t m) { return m % 2 == 0 ? 4 : 2; })});
}

// Sums overflow in step 2, two ranks have non-finite numbers in step 3, and one
// of them in step 4.
void poison(const Coordinates& at, int64_t step, int32_t tensor,
            std::span<float> gradient) {
  if (gradient.empty()) return;
  constexpr float kHuge = std::numeric_limits<float>::max();
  if (step == 2 && tensor == 4) gradient[0] = kHuge;
  if (step == 3 && tensor >= 3 && at.rank < 2)
    gradient[gradient.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  if (step == 4 && tensor == 1 && at.rank == 1)
    gradient[0] = -std::numeric_limits<float>::infinity();
}

TEST(LateStep, SkipsAndClipsAsTheCpuDoes) {
  for (const std::string zero : {"zero1", "zero3"})
    for (const std::string mesh : {"dp=4", "dp=2,tp=2", "dp=2,ep=2"}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      LateTrial trial{
          .plan = small_plan(toy_moe(), {.mesh = mesh, .zero = zero}),
          .steps = 6,
          .poison = poison};
      using Told = std::map<std::pair<int, int64_t>, std::string>;
      const auto run = [&](Told& told) {
        std::mutex mutex;
        trial.outcome = [&](int rank, int64_t step, const StepOutcome& o) {
          const std::lock_guard lock(mutex);
          told[{rank, step}] =
              cat(o.skipped, " ", o.nonfinite_tensor, " ", o.nonfinite_rank,
                  " ", std::bit_cast<uint64_t>(o.gradient_norm));
        };
        return run_late_trial(trial);
      };
      Told right;
      const std::string digests = run(right);
      for (const int64_t step : {2, 3, 4})
        EXPECT_EQ((right[{0, step}][0]), '1') << right[{0, step}];
      for (const LateDevice::Options& device : kDevices) {
        trial.device = device;
        Told told;
        ASSERT_EQ(run(told), digests) << "eagerness " << device.eagerness;
        EXPECT_EQ(told, right);
      }
    }
}

// Not even for the outcome of the previous step, if that has ended.
TEST(LateStep, WaitsForNothingWithoutARefresh) {
  for (const std::string rule : {"muon", "adamw"})
    for (const std::string zero : {"zero1", "zero3"})
      for (const std::string mesh : {"dp=1", "dp=4", "dp=2,tp=2"}) {
        SCOPED_TRACE(cat(rule, " ", mesh, " ", zero));
        LateTrial trial{
            .plan = small_plan(toy_moe(),
                               {.mesh = mesh, .rule = rule, .zero = zero}),
            .micro_batches = 2,
            .device = LateDevice::Options{.eagerness = 0.5}};
        std::vector<int64_t> waits(static_cast<size_t>(trial.plan.mesh.world()),
                                   -1);
        trial.waits = &waits;
        run_late_trial(trial);
        EXPECT_EQ(waits, std::vector<int64_t>(waits.size(), 0));
      }
}

TEST(LateTeams, WaitForNothing) {
  LateTrial trial{
      .plan = team_plan("dp=2,tp=4", strips(8), [](size_t) { return 4; }),
      .device = LateDevice::Options{.eagerness = 0.5}};
  std::vector<int64_t> waits(static_cast<size_t>(trial.plan.mesh.world()), -1);
  trial.waits = &waits;
  run_late_trial(trial);
  EXPECT_EQ(waits, std::vector<int64_t>(waits.size(), 0));
}

}  // namespace
}  // namespace canzona::runtime::late_device_test

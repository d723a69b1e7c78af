// Steps through the C interface, on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "canzona/c/canzona.h"

namespace canzona::c::c_step_test {

using testing::HasSubstr;
using testing::IsNull;
using testing::NotNull;

constexpr const char* kOneRank = R"({
  "canzona_storage": 1, "world": 1,
  "groups": [{"rule": "muon", "options": {"preset": "torch", "device": "cpu"}},
             {"rule": "adamw", "options": {}}],
  "tensors": [
    {"name": "w", "shape": [5, 4], "dtype": "fp32", "group": 0,
     "stored": [[[[0, 0], [5, 4]]]]},
    {"name": "b", "shape": [3], "dtype": "fp32", "group": 1,
     "stored": [[[[0], [3]]]]}]})";

constexpr double kRates[] = {0.1, 0.1};

// A plan, a step and its memory.
struct Trial {
  explicit Trial(const char* request = kOneRank, int32_t threads = 1)
      : plan(canzona_plan_new(request,
                              static_cast<int64_t>(std::strlen(request)))),
        step(canzona_step_new(plan, 0, "cpu", nullptr, threads, nullptr)) {
    if (step == nullptr) return;
    layout = nlohmann::json::parse(canzona_step_layout(step));
    for (const auto& tensor : layout["tensors"]) {
      const size_t count = tensor["stored"].get<size_t>();
      weights.emplace_back(count, 1.0f);
      gradients.emplace_back(count, 0.5f);
    }
    for (const auto& memory : layout["memories"])
      states.emplace_back(memory.get<size_t>(), 0.0f);
    slots.resize(layout["slot_elements"].get<size_t>() + 1);
  }
  ~Trial() {
    canzona_step_free(step);
    canzona_plan_free(plan);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  int bind() {
    std::vector<void*> weight_at;
    std::vector<float*> state_at;
    for (auto& values : weights) weight_at.push_back(values.data());
    for (auto& values : states) state_at.push_back(values.data());
    const canzona_memory memory = {weight_at.data(), nullptr, state_at.data(),
                                   slots.data(),     nullptr, numbers};
    return canzona_step_bind(step, &memory);
  }
  int begin(int64_t number = 1) {
    std::vector<canzona_gradient> given;
    for (auto& values : gradients)
      given.push_back({values.data(), CANZONA_FP32});
    const std::vector<int64_t> steps(given.size(), number);
    return canzona_step_begin(step, given.data(), steps.data(), rates);
  }
  int run_all() {
    int32_t at = 0;
    for (const auto& action : layout["actions"]) {
      if (action["kind"] == "compute" && canzona_step_run(step, at) != 0)
        return -1;
      ++at;
    }
    return 0;
  }
  int take(int64_t number) {
    if (begin(number) != 0 || run_all() != 0) return -1;
    return canzona_step_end(step);
  }

  canzona_plan* plan;
  canzona_step* step;
  nlohmann::json layout;
  std::vector<std::vector<float>> weights, gradients, states;
  std::vector<float> slots;
  double rates[2] = {0.1, 0.1};
  int64_t numbers[CANZONA_NUMBERS] = {};
};

TEST(CStep, UpdatesMemoryOfTheCallers) {
  Trial trial;
  ASSERT_EQ(trial.bind(), 0) << canzona_error();
  const auto before = trial.weights;
  for (int64_t number : {1, 2, 3})
    ASSERT_EQ(trial.take(number), 0) << canzona_error();
  for (size_t t = 0; t < before.size(); ++t)
    for (size_t i = 0; i < before[t].size(); ++i)
      EXPECT_LT(trial.weights[t][i], before[t][i]) << t << " " << i;
  canzona_outcome outcome = {};
  ASSERT_EQ(canzona_step_outcome(trial.step, &outcome), 0);
  EXPECT_EQ(outcome.skipped, 0);
  EXPECT_EQ(outcome.nonfinite_tensor, -1);
}

TEST(CStep, HasTheSameBitsOnAnyNumberOfThreads) {
  Trial one(kOneRank, 1), four(kOneRank, 4);
  for (Trial* trial : {&one, &four}) {
    ASSERT_EQ(trial->bind(), 0) << canzona_error();
    for (int64_t number : {1, 2}) ASSERT_EQ(trial->take(number), 0);
  }
  EXPECT_EQ(one.weights, four.weights);
  EXPECT_EQ(one.states, four.states);
}

TEST(CStep, TellsTheNormAndSkipsWhatIsNotFinite) {
  Trial trial;
  ASSERT_EQ(trial.bind(), 0);
  ASSERT_EQ(trial.begin(), 0);
  ASSERT_EQ(canzona_step_look(trial.step), 0) << canzona_error();
  ASSERT_EQ(canzona_step_squares(trial.step), 0) << canzona_error();
  ASSERT_EQ(canzona_step_judge(trial.step, 1), 0) << canzona_error();
  ASSERT_EQ(trial.run_all(), 0);
  ASSERT_EQ(canzona_step_end(trial.step), 0);
  canzona_outcome outcome = {};
  ASSERT_EQ(canzona_step_outcome(trial.step, &outcome), 0);
  EXPECT_DOUBLE_EQ(outcome.norm, 0.5 * std::sqrt(23.0));

  const auto before = trial.weights;
  trial.gradients[1][2] = std::numeric_limits<float>::infinity();
  ASSERT_EQ(trial.begin(2), 0);
  ASSERT_EQ(canzona_step_look(trial.step), 0);
  ASSERT_EQ(canzona_step_judge(trial.step, 1), 0);
  ASSERT_EQ(trial.run_all(), 0);
  ASSERT_EQ(canzona_step_end(trial.step), 0);
  ASSERT_EQ(canzona_step_outcome(trial.step, &outcome), 0);
  EXPECT_EQ(outcome.skipped, 1);
  EXPECT_EQ(outcome.nonfinite_tensor, 1);
  EXPECT_EQ(trial.weights, before);
}

TEST(CStep, RefusesRequestsThatItCannotFulfil) {
  Trial trial;
  const auto said = [](canzona_step* step) {
    EXPECT_THAT(step, IsNull());
    EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
    return std::string(canzona_error());
  };
  const auto make = [&](int32_t rank, const char* device, int32_t threads,
                        const canzona_allocator* scratch = nullptr) {
    return canzona_step_new(trial.plan, rank, device, nullptr, threads,
                            scratch);
  };
  EXPECT_THAT(said(canzona_step_new(nullptr, 0, "cpu", nullptr, 1, nullptr)),
              HasSubstr("the plan is NULL"));
  EXPECT_THAT(said(make(-1, "cpu", 1)), HasSubstr("rank -1, expected 0 to 0"));
  EXPECT_THAT(said(make(1, "cpu", 1)), HasSubstr("rank 1, expected 0 to 0"));
  EXPECT_THAT(said(make(0, nullptr, 1)), HasSubstr("device is NULL"));
  EXPECT_THAT(said(make(0, "cpu:0", 1)), HasSubstr("'cpu:0'"));
  for (const int32_t threads : {0, -3, 1025, INT32_MAX})
    EXPECT_THAT(said(make(0, "cpu", threads)), HasSubstr("threads, expected"));
  const canzona_allocator empty = {};
  EXPECT_THAT(said(make(0, "cpu", 1, &empty)), HasSubstr("scratch is NULL"));
  const auto* as_plan = reinterpret_cast<const canzona_plan*>(trial.step);
  EXPECT_THAT(said(canzona_step_new(as_plan, 0, "cpu", nullptr, 1, nullptr)),
              HasSubstr("no such plan"));
}

TEST(CStep, NamesMemoryThatIsMissing) {
  Trial trial;
  EXPECT_EQ(canzona_step_bind(trial.step, nullptr), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("memory is NULL"));
  canzona_memory memory = {};
  EXPECT_EQ(canzona_step_bind(trial.step, &memory), -1);
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  std::vector<float> b(3);
  void* weights[] = {nullptr, b.data()};
  memory.weights = weights;
  memory.slots = trial.slots.data();
  memory.numbers = trial.numbers;
  EXPECT_EQ(canzona_step_bind(trial.step, &memory), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("'w'"));
}

// Learning rates that make no sense for any rule.
TEST(CStep, RefusesLearningRates) {
  Trial trial;
  ASSERT_EQ(trial.bind(), 0);
  const auto before = trial.weights;
  const double inf = std::numeric_limits<double>::infinity();
  for (const double rate :
       {-0.1, -1e-30, inf, std::numeric_limits<double>::quiet_NaN()}) {
    trial.rates[1] = rate;
    EXPECT_EQ(trial.take(1), -1) << rate;
    EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
    EXPECT_THAT(canzona_error(), HasSubstr("group 1, rule adamw"));
  }
  EXPECT_EQ(trial.weights, before);
  trial.rates[1] = 0;
  EXPECT_EQ(trial.take(1), 0) << canzona_error();
}

TEST(CStep, RefusesAddressesThatAreNotAligned) {
  Trial trial;
  const auto shifted = [](const void* at, int bytes) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) +
                                   static_cast<uintptr_t>(bytes));
  };
  void* weights[] = {trial.weights[0].data(), trial.weights[1].data()};
  std::vector<float*> states;
  for (auto& values : trial.states) states.push_back(values.data());
  const canzona_memory good = {weights,       nullptr,
                               states.data(), trial.slots.data(),
                               nullptr,       trial.numbers};
  const auto said = [&](const canzona_memory& memory) {
    EXPECT_EQ(canzona_step_bind(trial.step, &memory), -1);
    EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
    return std::string(canzona_error());
  };
  canzona_memory memory = good;
  memory.slots = shifted(good.slots, 2);
  EXPECT_THAT(said(memory), HasSubstr("slots at an address"));
  memory = good;
  memory.numbers = static_cast<int64_t*>(shifted(good.numbers, 4));
  EXPECT_THAT(said(memory), HasSubstr("expected a multiple of 8 bytes"));
  weights[0] = shifted(weights[0], 2);
  EXPECT_THAT(said(good), HasSubstr("tensor 'w': weights at an address"));
  weights[0] = trial.weights[0].data();
  states[0] = static_cast<float*>(shifted(states[0], 1));
  EXPECT_THAT(said(good), HasSubstr("states at an address"));
  states[0] = trial.states[0].data();
  ASSERT_EQ(canzona_step_bind(trial.step, &good), 0) << canzona_error();

  canzona_gradient gradients[] = {
      {trial.gradients[0].data(), CANZONA_FP32},
      {shifted(trial.gradients[1].data(), 2), CANZONA_FP32}};
  const int64_t steps[] = {1, 1};
  EXPECT_EQ(canzona_step_begin(trial.step, gradients, steps, trial.rates), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("tensor 'b': a gradient at"));
  gradients[1].dtype = CANZONA_BF16;
  EXPECT_EQ(canzona_step_begin(trial.step, gradients, steps, trial.rates), 0)
      << canzona_error();
}

// As a caller does whose collective has failed.
TEST(CStep, IsGivenUpAtAnyPoint) {
  Trial trial, other;
  EXPECT_EQ(canzona_step_abandon(trial.step), 0) << canzona_error();
  ASSERT_EQ(trial.bind(), 0);
  ASSERT_EQ(other.bind(), 0);
  EXPECT_EQ(canzona_step_abandon(trial.step), 0);
  ASSERT_EQ(trial.begin(), 0);
  EXPECT_EQ(canzona_step_abandon(trial.step), 0);
  EXPECT_EQ(canzona_step_end(trial.step), -1);
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  // Nothing was done, so the next step is the first.
  ASSERT_EQ(trial.take(1), 0) << canzona_error();
  ASSERT_EQ(other.take(1), 0);
  EXPECT_EQ(trial.weights, other.weights);
  ASSERT_EQ(trial.begin(2), 0);
  ASSERT_EQ(canzona_step_run(trial.step, 0), 0) << canzona_error();
  EXPECT_EQ(canzona_step_abandon(trial.step), 0);
  EXPECT_EQ(canzona_step_run(trial.step, 1), -1);
  EXPECT_EQ(trial.take(2), 0) << canzona_error();
  ASSERT_EQ(trial.begin(3), 0);
  canzona_step_free(trial.step);
  EXPECT_EQ(canzona_step_abandon(trial.step), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("no such step; it was freed"));
}

TEST(CStep, RefusesCallsOutOfOrder) {
  Trial trial;
  EXPECT_EQ(trial.begin(), -1);
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  ASSERT_EQ(trial.bind(), 0);
  EXPECT_EQ(canzona_step_run(trial.step, 0), -1);
  EXPECT_EQ(canzona_step_end(trial.step), -1);
  EXPECT_EQ(canzona_step_look(trial.step), -1);
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  for (const int32_t action : {-1, 1000, INT32_MAX, INT32_MIN}) {
    ASSERT_EQ(trial.begin(), 0) << canzona_error();
    EXPECT_EQ(canzona_step_run(trial.step, action), -1);
    EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  }
  ASSERT_EQ(trial.take(1), 0) << canzona_error();
}

TEST(CStep, RefusesArgumentsThatAreWrong) {
  Trial trial;
  ASSERT_EQ(trial.bind(), 0);
  canzona_gradient gradients[] = {{trial.gradients[0].data(), 7},
                                  {trial.gradients[1].data(), CANZONA_FP32}};
  const int64_t steps[] = {1, 1};
  const auto begin = [&](const canzona_gradient* g, const int64_t* s,
                         const double* r) {
    EXPECT_EQ(canzona_step_begin(trial.step, g, s, r), -1);
    EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
    return std::string(canzona_error());
  };
  EXPECT_THAT(begin(gradients, steps, kRates), HasSubstr("'w' has dtype 7"));
  gradients[0].dtype = CANZONA_FP32;
  EXPECT_THAT(begin(nullptr, steps, kRates), HasSubstr("gradients is NULL"));
  EXPECT_THAT(begin(gradients, nullptr, kRates), HasSubstr("steps is NULL"));
  EXPECT_THAT(begin(gradients, steps, nullptr), HasSubstr("rates is NULL"));
  EXPECT_EQ(canzona_step_outcome(trial.step, nullptr), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("outcome is NULL"));
}

TEST(CStep, IsPartOfAGraphOnAGpuAlone) {
  Trial trial;
  ASSERT_EQ(trial.bind(), 0);
  const canzona_gradient gradients[] = {
      {trial.gradients[0].data(), CANZONA_FP32},
      {trial.gradients[1].data(), CANZONA_FP32}};
  float counts[] = {0, 0};
  float* const places[] = {&counts[0], &counts[1]};
  const canzona_rate rates[] = {{0.1, nullptr, 0}, {0.1, nullptr, 0}};
  int64_t told[] = {0, 0};
  canzona_replay replay = {places, rates, &told[0], &told[1], 0, 1};
  EXPECT_EQ(canzona_step_capture(trial.step, gradients, &replay), -1);
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  replay.counts = nullptr;
  EXPECT_EQ(canzona_step_capture(trial.step, gradients, &replay), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("counts is NULL"));
  EXPECT_EQ(canzona_step_capture(trial.step, gradients, nullptr), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("replay is NULL"));
  ASSERT_EQ(trial.take(1), 0) << canzona_error();
}

TEST(CStep, ChangesOptionsOfAGroup) {
  Trial trial;
  ASSERT_EQ(trial.bind(), 0);
  const auto set = [&](int32_t group, const std::string& json) {
    return canzona_step_options(trial.step, group, json.data(),
                                static_cast<int64_t>(json.size()));
  };
  EXPECT_EQ(set(0, R"({"weight_decay": "0.2"})"), 0) << canzona_error();
  EXPECT_EQ(set(2, "{}"), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("group 2, expected 0 to 1"));
  EXPECT_EQ(set(0, "[]"), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("expected a JSON object"));
  EXPECT_EQ(set(0, R"({"weight_decay": 0.2})"), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("write \"0.1\", not 0.1"));
  EXPECT_EQ(set(0, R"({"wait_decay": "0.2"})"), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("weight_decay"));
  EXPECT_EQ(canzona_step_options(trial.step, 0, nullptr, 0), -1);
}

TEST(CStep, OutlivesItsPlan) {
  Trial trial;
  canzona_plan_free(trial.plan);
  ASSERT_EQ(trial.bind(), 0) << canzona_error();
  EXPECT_EQ(trial.take(1), 0) << canzona_error();
}

TEST(CStep, IsRefusedOnceItIsFreed) {
  Trial trial;
  canzona_step_free(trial.step);
  canzona_step_free(trial.step);
  canzona_step_free(nullptr);
  EXPECT_EQ(trial.bind(), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("no such step; it was freed"));
  EXPECT_THAT(canzona_step_layout(trial.step), IsNull());
}

TEST(CStep, DoesNothingInAForkedChild) {
  Trial trial(kOneRank, 2);
  ASSERT_EQ(trial.bind(), 0);
  ASSERT_EQ(trial.take(1), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (trial.begin(2) == 0) _exit(1);
    if (canzona_error_kind() != CANZONA_USAGE_ERROR) _exit(2);
    canzona_step_free(trial.step);
    // ThreadSanitizer does not let a forked child start threads.
#ifdef __SANITIZE_THREAD__
    constexpr int kThreads = 1;
#else
    constexpr int kThreads = 2;
#endif
    Trial own(kOneRank, kThreads);
    _exit(own.step != nullptr && own.bind() == 0 && own.take(1) == 0 ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(trial.take(2), 0) << canzona_error();
}

TEST(CStep, RefusesASecondThread) {
  Trial trial;
  std::atomic<bool> wrong = false;
  const auto ask = [&] {
    for (int i = 0; i < 2000; ++i)
      if (canzona_step_layout(trial.step) == nullptr &&
          std::string(canzona_error()).find("another thread is using") ==
              std::string::npos)
        wrong = true;
  };
  std::thread other(ask);
  ask();
  other.join();
  EXPECT_FALSE(wrong);
}

#if defined(__x86_64__)
// Without the exception flags.
uint64_t arithmetic() { return __builtin_ia32_stmxcsr() & ~0x3Fu; }
void flush_denormals() {
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
}
void set_arithmetic(uint64_t mode) {
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(mode));
}
#elif defined(__aarch64__)
uint64_t arithmetic() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void set_arithmetic(uint64_t mode) {
  asm volatile("msr fpcr, %0" : : "r"(mode));
}
void flush_denormals() { set_arithmetic(arithmetic() | (1u << 24)); }
#endif

#if defined(__x86_64__) || defined(__aarch64__)
void give_denormal_gradients(Trial& trial) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (auto& values : trial.gradients)
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = tiny * static_cast<float>(1000 + i);
}

TEST(CStep, ComputesDenormalNumbersThoughItsCallerFlushesThem) {
  Trial plain(kOneRank, 2), flushed(kOneRank, 2);
  give_denormal_gradients(plain);
  give_denormal_gradients(flushed);
  ASSERT_EQ(plain.bind(), 0);
  ASSERT_EQ(plain.take(1), 0);
  const uint64_t before = arithmetic();
  flush_denormals();
  const uint64_t asked_for = arithmetic();
  const bool worked = flushed.bind() == 0 && flushed.take(1) == 0;
  const uint64_t after = arithmetic();
  set_arithmetic(before);
  ASSERT_TRUE(worked);
  EXPECT_EQ(after, asked_for);
  EXPECT_NE(after, before);
  EXPECT_EQ(plain.states, flushed.states);
  EXPECT_EQ(plain.weights, flushed.weights);
}
#endif

}  // namespace canzona::c::c_step_test

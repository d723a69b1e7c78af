// Plans whose collectives use NCCL, on its stub: all memory that they access is
// registered while it is used, and results are those of the CPU.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "canzona/comm/nccl/test_ranks_nccl.h"
#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/runtime/testing/test_late_trial.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"

namespace canzona::runtime::nccl_memory_test {
namespace {

class DoneEvent final : public Event {
 public:
  bool reached() override { return true; }
  void wait() override {}
};

// A queue of CPU work that runs immediately.
class AtOnceLane final : public MemoryLane {
 public:
  const MemoryOps& ops() const override { return cpu_memory_ops(); }
  std::unique_ptr<Event> make_event() const override {
    return std::make_unique<DoneEvent>();
  }
  std::unique_ptr<Event> make_timed_event() const override {
    return make_event();
  }
  void record_in(Event&) override {}
  void wait_until(const Event&) override {}
  std::atomic<uint32_t>& make_word() override { return words_.emplace_back(0); }
  void write(std::atomic<uint32_t>& word, uint32_t value) override {
    word = value;
  }
  void wait_until(const std::atomic<uint32_t>& word, uint32_t value) override {
    while (static_cast<int32_t>(word.load() - value) < 0)
      std::this_thread::yield();
  }
  void* native() override { return &lane_; }

 private:
  std::deque<std::atomic<uint32_t>> words_;
  TestLane lane_{TestLane::When::kAtOnce};
};

class AtOnceEngine final : public CpuEngine {
 public:
  AtOnceEngine() : CpuEngine(usable_bf16_kernels().front()) {}
  std::unique_ptr<MemoryLane> make_lane() override {
    return std::make_unique<AtOnceLane>();
  }
};

std::string run_on_stub(const LateTrial& trial, const NcclOptions& nccl,
                        int* num_communicators = nullptr) {
  const int world = trial.plan.mesh.world();
  std::vector<uint64_t> seen(static_cast<size_t>(world));
  std::string digests;
  run_nccl_ranks(
      world, {.nccl = nccl, .when = TestLane::When::kAtOnce},
      [&](NcclTestRank& rank) {
        AtOnceEngine engine;
        Runtime runtime(trial.plan, rank.world, engine, trial.options);
        LateTrainer trainer(trial, runtime, engine);
        for (int64_t step = 1; step <= trial.steps; ++step) {
          trainer.run(step);
          runtime.issue_step({.learning_rate = 0.01,
                              .gradient_factor = gradient_factor(
                                  GradientKind::kRandom, trial.plan.mesh),
                              .clip_norm = trial.clip_norm});
          runtime.zero_gradients();
        }
        const std::string found =
            cat(runtime.parameter_digest(), " ", runtime.state_digest());
        seen[static_cast<size_t>(rank.world.rank())] = trainer.seen();
        if (rank.world.rank() != 0) return;
        digests = found;
        if (num_communicators != nullptr)
          *num_communicators = rank.session.num_communicators();
      });
  for (const uint64_t number : seen) digests += cat(" ", number);
  return digests;
}

// Everything that was accessed was registered, and nothing is left.
void expect_memory_was_registered() {
  const StubMemoryUse use = take_stub_memory_use();
  EXPECT_GT(use.num_looks, 0);
  EXPECT_EQ(use.num_unregistered, 0)
      << use.last_unregistered << " " << use.last_bytes;
  EXPECT_EQ(use.num_freed_too_soon, 0);
  EXPECT_EQ(use.num_registered, 0);
  EXPECT_EQ(num_stub_allocated(), 0);
}

TEST(NcclMemory, HoldsAllThatCollectivesTouchAndEndsAfterTheirGroups) {
  for (const std::string zero : {"zero1", "zero2", "zero3"})
    for (const std::string mesh : {"dp=2", "dp=2,tp=2", "dp=2,ep=2"}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      const LateTrial trial{
          .plan = small_plan(toy_moe(), {.mesh = mesh, .zero = zero}),
          .steps = 2,
          .micro_batches = 2};
      take_stub_memory_use();
      EXPECT_EQ(run_on_stub(trial, {}), run_late_trial(trial));
      expect_memory_was_registered();
    }
}

// Teams give the result of whole owners, with the same communicators.
TEST(NcclMemory, HoldsWhatTeamsExchangeAndAddsNoCommunicator) {
  const auto trial_of = [](int32_t size) {
    return LateTrial{
        .plan = team_plan("dp=2,tp=4", strips(8), [=](size_t) { return size; }),
        .steps = 2};
  };
  int with_owners = 0;
  const std::string right = run_late_trial(trial_of(1));
  EXPECT_EQ(run_on_stub(trial_of(1), {}, &with_owners), right);
  for (const int32_t size : {2, 4}) {
    SCOPED_TRACE(size);
    int with_teams = 0;
    take_stub_memory_use();
    EXPECT_EQ(run_on_stub(trial_of(size), {}, &with_teams), right);
    EXPECT_EQ(with_teams, with_owners);
    expect_memory_was_registered();
  }
}

TEST(NcclMemory, MayBePlain) {
  const LateTrial trial{.plan = small_plan(toy_model(), {.mesh = "dp=2,tp=2"})};
  EXPECT_EQ(run_on_stub(trial, {.plain_memory = true}), run_late_trial(trial));
  EXPECT_EQ(take_stub_memory_use().num_registered, 0);
}

}  // namespace
}  // namespace canzona::runtime::nccl_memory_test

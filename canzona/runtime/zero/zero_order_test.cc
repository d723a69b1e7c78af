// Tests of who waits for what, with operations that are held back: orders are
// enforced, not timed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "canzona/comm/thread/test_gate.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_order_test {
namespace {

using Passage = TestGate::Passage;

constexpr int kRanks = 2;

// Holds back some operations of all ranks until `may_open` says that compute
// has advanced as far as it can.
class HeldRun {
 public:
  explicit HeldRun(ZeroVariant variant)
      : plan_(zero_plan(toy_model(4), kRanks, variant)),
        overlap_(variant.overlap) {}

  const Plan& plan() const { return plan_; }
  bool is_open() const { return open_; }

  // A rank has advanced as far as it can.
  void has_come() { ++num_come_; }

  // Runs `body` on every rank; holds back the operations that match.
  void run(const TestGate::Predicate& held, int64_t num_held,
           const std::function<void(Runtime&)>& body) {
    gate_.hold(held);
    std::thread opener([&] { open(num_held); });
    RunOptions options;
    options.world.gate = &gate_;
    run_ranks(kRanks, options, [&](Communicator& world) {
      const auto engine = make_cpu_engine();
      Runtime runtime(plan_, world, *engine, {.overlap = overlap_});
      set_initial_parameters(runtime);
      body(runtime);
    });
    opener.join();
    EXPECT_TRUE(open_);
  }

 private:
  void open(int64_t num_held) {
    try {
      gate_.wait_until_held(static_cast<int>(num_held));
    } catch (const PeerLost&) {
      return;
    }
    while (num_come_ < kRanks) std::this_thread::yield();
    open_ = true;
    gate_.release();
  }

  Plan plan_;
  Overlap overlap_;
  TestGate gate_;
  std::atomic<int> num_come_ = 0;
  std::atomic<bool> open_ = false;
};

TestGate::Predicate operations_of(std::string group, std::string label) {
  return [=](const Passage& p) { return p.group == group && p.label == label; };
}

void use(Runtime& runtime, int32_t module) {
  runtime.wait_params(module);
  runtime.release_params(module);
}

// The gather of layer 2 is held: earlier modules can be used, layer 2 cannot;
// once released, everything continues.
TEST(Gathers, HoldBackTheModuleThatIsMissingAndNoOther) {
  for (const Overlap overlap : {Overlap::kMain, Overlap::kBackground}) {
    HeldRun held({.sizes = {2, 2, 2}, .overlap = overlap, .prefetch = 2});
    const std::vector<int32_t> uses{0, 1, 2, 3, 4, 5};
    held.run(operations_of("parameters", "layer 2"), kRanks, [&](Runtime& r) {
      r.begin_iteration(uses, 1);
      use(r, 0);
      use(r, 1);
      r.wait_params(2);  // its successor is requested in both modes
      held.has_come();
      r.release_params(2);
      r.wait_params(3);
      EXPECT_TRUE(held.is_open());
      r.release_params(3);
      use(r, 4);
      use(r, 5);
    });
  }
}

// With one slot compute waits for the scatter of the previous module; with more
// slots it can advance by as many modules.
TEST(Scatters, HoldBackComputeWhenNoSlotIsLeft) {
  for (const int32_t prefetch : {0, 1, kMostScatterAhead}) {
    HeldRun held({.sizes = {2, 2, 1}, .prefetch = prefetch});
    held.run(operations_of("gradients", "head"), kRanks, [&](Runtime& r) {
      const Model& model = held.plan().model;
      const int32_t last = static_cast<int32_t>(model.tensors.size()) - 1;
      const auto in_module = [&](int32_t t) {
        return module_of(model, model.tensors[static_cast<size_t>(t)]);
      };
      r.begin_iteration({}, 1);
      int32_t free_slots = 1 + prefetch, module = -1;
      for (int32_t t = last; t >= 0; --t) {
        const bool is_new = in_module(t) != module;
        module = in_module(t);
        if (is_new && free_slots-- == 0) held.has_come();
        r.gradient(t)[0] += 1;
        EXPECT_EQ(held.is_open(), free_slots < 0);
        r.grad_ready(t);
      }
      r.step({.learning_rate = 0.01});
      EXPECT_EQ(r.pool_use().scatter_slots, 1 + prefetch);
      EXPECT_EQ(r.pool_use().slots_now, 0);
    });
  }
}

// A module is not gathered before its new parameters have arrived.
TEST(Gathers, WaitForNewParametersOfOtherGroups) {
  HeldRun held({.sizes = {2, 1, 2}, .prefetch = 5});
  Trial trial{.plan = held.plan()};
  const auto publishes = [](const Passage& p) {
    return p.operation == Operation::kAllGather && p.label == "head" &&
           p.group != "parameters";
  };
  const int32_t head = num_modules(held.plan().model) - 1;
  held.run(publishes, kRanks, [&](Runtime& r) {
    const auto engine = make_cpu_engine();
    make_gradients(r, *engine, trial, 1);
    r.step({.learning_rate = 0.01});
    r.begin_iteration(uses_of(r, 1), 1);
    for (int32_t m = 0; m < head; ++m) use(r, m);
    held.has_come();
    r.wait_params(head);
    EXPECT_TRUE(held.is_open());
    r.release_params(head);
    for (int32_t m = head; m >= 0; --m) use(r, m);
  });
}

// Measures how far gathers are ahead of compute.
class Lookahead : public Gate {
 public:
  explicit Lookahead(
      std::function<int64_t(int64_t asked, int64_t released)> most)
      : most_(std::move(most)) {}

  void pass(std::string_view group, Operation, std::string_view,
            int rank) override {
    if (group != "parameters") return;
    Count& count = counts_[static_cast<size_t>(rank)];
    const int64_t begun = ++count.begun;
    if (begun > most_(count.asked, count.released)) ++num_too_far_;
  }
  void open_for_good() noexcept override {}

  void ask(int rank) { ++counts_[static_cast<size_t>(rank)].asked; }
  void release(int rank) { ++counts_[static_cast<size_t>(rank)].released; }
  int num_too_far() const { return num_too_far_; }

 private:
  struct Count {
    std::atomic<int64_t> begun = 0, asked = 0, released = 0;
  };
  std::function<int64_t(int64_t, int64_t)> most_;
  std::array<Count, kRanks> counts_;
  std::atomic<int> num_too_far_ = 0;
};

// Several passes over all modules; counted before compute calls, so that
// nothing is missed.
int num_too_far(Overlap overlap, int32_t prefetch, Lookahead& gate) {
  const Plan plan =
      zero_plan(toy_model(4), kRanks,
                {.sizes = {2, 2, 2}, .overlap = overlap, .prefetch = prefetch});
  RunOptions options;
  options.world.gate = &gate;
  run_ranks(kRanks, options, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {.overlap = overlap});
    for (int round = 0; round < 20; ++round) {
      const std::vector<int32_t> uses = uses_of(runtime, 1);
      runtime.begin_iteration(uses, 1);
      for (int32_t module : uses) {
        gate.ask(world.rank());
        runtime.wait_params(module);
        gate.release(world.rank());
        runtime.release_params(module);
      }
    }
  });
  return gate.num_too_far();
}

TEST(Gathers, GoAsFarAheadAsTheModeAllows) {
  Lookahead none([](int64_t asked, int64_t) { return asked; });
  EXPECT_EQ(num_too_far(Overlap::kNone, 5, none), 0);
  Lookahead main([](int64_t asked, int64_t) { return asked + 1; });
  EXPECT_EQ(num_too_far(Overlap::kMain, 5, main), 0);
  for (const int32_t prefetch : {0, 1, 3}) {
    Lookahead slots(
        [=](int64_t, int64_t released) { return released + 1 + prefetch; });
    EXPECT_EQ(num_too_far(Overlap::kBackground, prefetch, slots), 0);
  }
}

}  // namespace
}  // namespace canzona::runtime::zero_order_test

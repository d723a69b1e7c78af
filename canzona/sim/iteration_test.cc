#include "canzona/sim/plan_iteration.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/sim/test_work.h"

namespace canzona::sim::iteration_test {
namespace {

using ::testing::HasSubstr;

// Forward 2 and backward 4 seconds; gathers of 2 seconds, scatters of 4, as in
// a ZeRO-3 whose links are as busy as its processor.
IterationWork four_modules(Overlap overlap) {
  IterationWork work = uniform_work(4, {.forward_seconds = 2,
                                        .backward_seconds = 4,
                                        .gather = intra_leg(2),
                                        .scatter = intra_leg(4)});
  work.overlap = overlap;
  return work;
}

// 24 of compute, 8 gathers of 2, 4 scatters of 4, one after the other.
TEST(Iteration, WithoutOverlapIsTheSumOfAll) {
  const IterationTime time = simulate_iteration(four_modules(Overlap::kNone));
  EXPECT_EQ(time.seconds, 24 + 16 + 16);
  EXPECT_EQ(time.compute_seconds, 24);
  EXPECT_EQ(time.waited_parameters, 16);
  EXPECT_EQ(time.waited_gradients, 16);
  EXPECT_EQ(time.waited_step, 0);
  EXPECT_EQ(time.busy_seconds, 32);
  EXPECT_EQ(time.hidden_fraction(), 0);
}

// With one slot in use and one ahead, every gather but the first overlaps a
// module. In backward a gather (2) and a scatter (4) share the port during each
// module's 4 seconds.
TEST(Iteration, InTheBackgroundHidesAllButTheEdges) {
  IterationWork work = four_modules(Overlap::kBackground);
  work.links.intra_bytes_per_second = 2;
  const IterationTime time = simulate_iteration(work);
  EXPECT_EQ(time.seconds, 1 + 24 + 2);
  EXPECT_EQ(time.waited_parameters, 1);
  EXPECT_EQ(time.waited_gradients, 0);
  EXPECT_EQ(time.waited_step, 2);
  EXPECT_EQ(time.busy_seconds, 16);
  EXPECT_EQ(time.edge_seconds, 3);
  EXPECT_DOUBLE_EQ(time.hidden_fraction(), 1 - 3.0 / 16);
}

// With main, the long gather of module 2 begins when compute reaches module 1
// and, on the way back, module 3: it is 2 seconds late twice.
TEST(Iteration, MainReachesOneUseAhead) {
  IterationWork work = uniform_work(
      4, {.forward_seconds = 3, .backward_seconds = 3, .gather = intra_leg(1)});
  work.modules[2].gather = intra_leg(5);
  work.gather_slots = 8;
  work.overlap = Overlap::kMain;
  EXPECT_EQ(simulate_iteration(work).seconds, 1 + 24 + 2 + 2);
  work.overlap = Overlap::kBackground;
  EXPECT_EQ(simulate_iteration(work).seconds, 1 + 24);
}

// Compute is fast, scatters are not: with s slots it runs s modules ahead.
TEST(Iteration, AFullScatterPoolMakesComputeWait) {
  IterationWork work =
      uniform_work(3, {.backward_seconds = 1, .scatter = intra_leg(10)});
  work.scatter_slots = 1;
  IterationTime time = simulate_iteration(work);
  EXPECT_EQ(time.seconds, 3 * 11);
  EXPECT_EQ(time.waited_gradients, 20);
  EXPECT_EQ(time.waited_step, 10);
  work.scatter_slots = 3;
  time = simulate_iteration(work);
  EXPECT_EQ(time.seconds, 1 + 30);
  EXPECT_EQ(time.waited_gradients, 0);
  EXPECT_EQ(time.waited_step, 28);
}

TEST(Iteration, GradientsGoHomeAfterTheLastMicroBatch) {
  IterationWork work =
      uniform_work(2, {.backward_seconds = 1, .reduce = inter_leg(3)});
  work.calls = calls_of(2, 3);
  const IterationTime time = simulate_iteration(work);
  EXPECT_EQ(time.bytes.sent_inter, 6);
  EXPECT_EQ(time.seconds, 5 + 6);  // module 1 is complete after 5 seconds
  EXPECT_EQ(time.waited_step, 5);
}

// After the step, modules are published in the order of the next forward; each
// is awaited separately.
TEST(Iteration, NewParametersAreWaitedForModuleByModule) {
  IterationWork work =
      uniform_work(3, {.forward_seconds = 4, .publish = inter_leg(2)});
  work.step_seconds = 7;
  const IterationTime time = simulate_iteration(work);
  EXPECT_EQ(time.waited_parameters, 2);
  EXPECT_EQ(time.seconds, 2 + 12 + 7);
  work.overlap = Overlap::kNone;
  EXPECT_EQ(simulate_iteration(work).seconds, 6 + 12 + 7);
}

TEST(Iteration, AGatherNeedsItsPublishedSlices) {
  IterationWork work = uniform_work(
      2,
      {.forward_seconds = 1, .gather = intra_leg(2), .publish = inter_leg(5)});
  // Published at 5 and 10, gathered at 7 and 12; backward gathers both again,
  // at 14 and 16.
  EXPECT_EQ(simulate_iteration(work).seconds, 16);
}

// Module 0 is read again together with the head, and its gradient is complete
// only at the very end.
TEST(Iteration, ATiedHeadHoldsItsSlots) {
  IterationWork work = uniform_work(3, {.forward_seconds = 1,
                                        .backward_seconds = 1,
                                        .gather = intra_leg(1),
                                        .scatter = intra_leg(1)});
  work.calls = calls_of(3, 1, true);
  EXPECT_EQ(least_gather_slots(work), 2);
  EXPECT_EQ(least_scatter_slots(work), 2);
  const IterationTime time = simulate_iteration(work);
  EXPECT_EQ(time.compute_seconds, 6);
  EXPECT_EQ(time.bytes.sent_intra, 8 + 3);
  work.gather_slots = 1;
  EXPECT_THROW(simulate_iteration(work), UsageError);
  work.gather_slots = 2;
  work.scatter_slots = 1;
  EXPECT_THROW(simulate_iteration(work), UsageError);
}

TEST(Iteration, ABubbleIsIdle) {
  IterationWork work = four_modules(Overlap::kBackground);
  const double without = simulate_iteration(work).seconds;
  work.bubble_seconds = 2;
  const IterationTime time = simulate_iteration(work);
  EXPECT_EQ(time.bubble_seconds, 2);
  EXPECT_EQ(time.waited_parameters, 0);  // the first gather fits in
  EXPECT_EQ(time.seconds, without);
}

void expect_refused(const IterationWork& work, const char* part) {
  try {
    simulate_iteration(work);
    FAIL() << "expected: " << part;
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

TEST(Iteration, RefusesWhatCannotBe) {
  IterationWork work = four_modules(Overlap::kNone);
  work.gather_slots = 0;
  expect_refused(work, "gathers need 1 slots, got 0");
  work = four_modules(Overlap::kNone);
  work.calls.push_back({TrainerCall::Kind::kWaitParams, 4});
  expect_refused(work, "module 4, there are 4");
  work = four_modules(Overlap::kNone);
  work.links.inter_bytes_per_second = 0;
  expect_refused(work, "bandwidth above 0");
  work = four_modules(Overlap::kNone);
  work.calls.clear();
  expect_refused(work, "no module is used");
  work = four_modules(Overlap::kNone);
  work.modules[1].forward_seconds = -1;
  expect_refused(work, "module 1");
}

// One module: 3 across and 2 inside before each pass; 4 inside and 5 across
// after backward.
TEST(Iteration, LegsComeOneAfterTheOther) {
  ModuleWork module{.forward_seconds = 10,
                    .backward_seconds = 10,
                    .gather = inter_leg(3),
                    .scatter = intra_leg(4)};
  module.gather.second = intra_transfer(2);
  module.scatter.second = inter_transfer(5);
  const IterationWork work = uniform_work(1, module);
  const IterationTime time = simulate_with(work, Overlap::kNone);
  EXPECT_DOUBLE_EQ(time.seconds, 2 * (5 + 10) + 9);
  EXPECT_DOUBLE_EQ(time.waited(), 5 + 5 + 9);
  EXPECT_DOUBLE_EQ(time.busy_intra_seconds, 2 + 2 + 4);
  EXPECT_DOUBLE_EQ(time.busy_inter_seconds, 3 + 3 + 5);
  EXPECT_DOUBLE_EQ(time.edge_seconds, 5 + 9);
  EXPECT_EQ(time.bytes.sent_inter, 3 + 3 + 5);
  EXPECT_EQ(iteration_bytes(work).sent_intra, 2 + 2 + 4);
}

}  // namespace
}  // namespace canzona::sim::iteration_test

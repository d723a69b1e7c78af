// Properties of any work: lower and upper bounds, and sums.
#include <gtest/gtest.h>

#include "canzona/sim/test_work.h"

namespace canzona::sim::iteration_bounds_test {
namespace {

constexpr int kTrials = 200;
constexpr double kTiny = 1e-9;

// Returns how long each port is occupied in an iteration.
PortSeconds all_port_seconds(const IterationWork& work) {
  PortSeconds sum{};
  each_transfer(work, [&](const Transfer& transfer) {
    const PortSeconds seconds = port_seconds(transfer, work.links);
    for (size_t p = 0; p < sum.size(); ++p) sum[p] += seconds[p];
  });
  return sum;
}

template <class Check>
void each_random_work(uint64_t seed, Check check) {
  Random random(seed);
  for (int trial = 0; trial < kTrials; ++trial) {
    SCOPED_TRACE(trial);
    check(random_work(random));
  }
}

TEST(IterationBounds, WithoutOverlapIsTheSumOfAll) {
  each_random_work(1, [](const IterationWork& work) {
    double sum = all_compute(work) + work.step_seconds;
    each_transfer(work, [&](const Transfer& transfer) {
      sum += seconds_alone(transfer, work.links, work.copy_bytes_per_second);
    });
    EXPECT_NEAR(simulate_with(work, Overlap::kNone).seconds, sum, kTiny);
  });
}

// Something always moves, so nothing takes longer than doing one thing after
// the other.
TEST(IterationBounds, OverlapNeverCosts) {
  each_random_work(2, [](const IterationWork& work) {
    const double none = simulate_with(work, Overlap::kNone).seconds;
    EXPECT_LE(simulate_with(work, Overlap::kMain).seconds, none + kTiny);
    EXPECT_LE(simulate_with(work, Overlap::kBackground).seconds, none + kTiny);
  });
}

// New parameters may leave during the step; everything else comes before it.
TEST(IterationBounds, NeitherComputeNorAPortIsFasterThanItself) {
  each_random_work(3, [](const IterationWork& work) {
    IterationWork unpublished = work;
    for (ModuleWork& module : unpublished.modules) module.publish = {};
    const double all_ports = std::ranges::max(all_port_seconds(work));
    const double ports = std::ranges::max(all_port_seconds(unpublished));
    const double compute = all_compute(work);
    for (Overlap overlap :
         {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
      const IterationTime time = simulate_with(work, overlap);
      EXPECT_NEAR(time.compute_seconds, compute, kTiny);
      EXPECT_GE(time.seconds,
                work.step_seconds + std::max(compute, ports) - kTiny);
      EXPECT_GE(time.seconds, all_ports - kTiny);
    }
  });
}

TEST(IterationBounds, PartsAddUp) {
  each_random_work(4, [](IterationWork work) {
    work.bubble_seconds = 3;
    WireBytes bytes;
    each_transfer(work, [&](const Transfer& t) { bytes = bytes + t.bytes; });
    EXPECT_EQ(iteration_bytes(work).sent(), bytes.sent());
    EXPECT_EQ(iteration_bytes(work).received(), bytes.received());
    for (Overlap overlap :
         {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
      const IterationTime time = simulate_with(work, overlap);
      EXPECT_NEAR(time.seconds,
                  time.compute_seconds + time.step_seconds +
                      time.bubble_seconds + time.waited(),
                  kTiny);
      EXPECT_EQ(time.bytes.sent_intra, bytes.sent_intra);
      EXPECT_EQ(time.bytes.received_intra, bytes.received_intra);
      EXPECT_EQ(time.bytes.sent_inter, bytes.sent_inter);
      EXPECT_EQ(time.bytes.received_inter, bytes.received_inter);
    }
  });
}

TEST(IterationBounds, PortsAreBusyAsLongAsTheirMessagesTake) {
  each_random_work(5, [](const IterationWork& work) {
    const PortSeconds ports = all_port_seconds(work);
    const IterationTime time = simulate_with(work, Overlap::kBackground);
    EXPECT_GE(time.busy_intra_seconds, std::max(ports[0], ports[1]) - kTiny);
    EXPECT_LE(time.busy_intra_seconds, ports[0] + ports[1] + kTiny);
    EXPECT_GE(time.busy_inter_seconds, std::max(ports[2], ports[3]) - kTiny);
    EXPECT_LE(time.busy_inter_seconds, ports[2] + ports[3] + kTiny);
    EXPECT_LE(time.busy_seconds,
              time.busy_intra_seconds + time.busy_inter_seconds + kTiny);
    EXPECT_LE(time.busy_seconds, time.seconds + kTiny);
  });
}

TEST(IterationBounds, OnInfiniteLinksComputeAndStepRemain) {
  each_random_work(6, [](IterationWork work) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    work.links = {kInfinite, kInfinite, 0, false};
    work.copy_bytes_per_second = 0;
    for (Overlap overlap :
         {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
      const IterationTime time = simulate_with(work, overlap);
      EXPECT_NEAR(time.seconds, all_compute(work) + work.step_seconds, kTiny);
      EXPECT_EQ(time.waited(), 0);
      EXPECT_EQ(time.hidden_fraction(), 1);
    }
  });
}

// Copies cost at most their own time.
TEST(IterationBounds, CopiesNeverCostMoreThanNoOverlap) {
  each_random_work(7, [](IterationWork work) {
    work.copy_bytes_per_second = 2;
    EXPECT_LE(simulate_with(work, Overlap::kBackground).seconds,
              simulate_with(work, Overlap::kNone).seconds + kTiny);
  });
}

}  // namespace
}  // namespace canzona::sim::iteration_bounds_test

// More of something good is never worse if no two threads share a port. If
// gathers and scatters share one, first come is first served: a gather far
// ahead may block a scatter that compute waits for, and an operation that is
// issued earlier may make the whole end later. That cost is small.
#include <gtest/gtest.h>

#include "canzona/sim/test_work.h"

namespace canzona::sim::iteration_order_test {
namespace {

constexpr int kTrials = 200;
constexpr double kTiny = 1e-9;
constexpr double kSmall = 1.1;

void keep_inside(Transfer& transfer) {
  transfer.bytes.sent_inter = transfer.bytes.received_inter = 0;
}

void keep_between(Transfer& transfer) {
  transfer.bytes.sent_intra = transfer.bytes.received_intra = 0;
}

// Gathers or scatters inside the node, the data thread between nodes.
IterationWork work_apart(Random& random) {
  IterationWork work = random_work(random);
  const bool gathers = random.coin();
  for (ModuleWork& module : work.modules) {
    (gathers ? module.scatter : module.gather) = {};
    for (Legs* legs : {&module.gather, &module.scatter}) {
      keep_inside(legs->first);
      keep_inside(legs->second);
    }
    for (Legs* legs : {&module.reduce, &module.publish}) {
      keep_between(legs->first);
      keep_between(legs->second);
    }
  }
  return work;
}

template <class Check>
void each_work_apart(uint64_t seed, Check check) {
  Random random(seed);
  for (int trial = 0; trial < kTrials; ++trial) {
    SCOPED_TRACE(trial);
    check(work_apart(random));
  }
}

// Simulates every number of slots from the smallest on; none may be slower than
// the previous one times `factor`.
void expect_slots_help(const IterationWork& work, int32_t& slots,
                       double factor) {
  double last = simulate_iteration(work).seconds;
  const auto most = static_cast<int32_t>(2 * work.modules.size());
  for (; slots < most; ++slots) {
    const double seconds = simulate_iteration(work).seconds;
    EXPECT_LE(seconds, last * factor + kTiny) << slots << " slots";
    last = seconds;
  }
}

void expect_slots_help(IterationWork work, double factor) {
  work.gather_slots = std::max(1, least_gather_slots(work));
  expect_slots_help(work, work.gather_slots, factor);
  work.scatter_slots = std::max(1, least_scatter_slots(work));
  expect_slots_help(work, work.scatter_slots, factor);
}

TEST(IterationOrder, BackgroundIsNotSlowerThanMain) {
  each_work_apart(1, [](const IterationWork& work) {
    EXPECT_LE(simulate_with(work, Overlap::kBackground).seconds,
              simulate_with(work, Overlap::kMain).seconds + kTiny);
  });
}

TEST(IterationOrder, FasterLinksAreNotSlower) {
  each_work_apart(2, [](IterationWork work) {
    double last = simulate_iteration(work).seconds;
    for (int doubling = 0; doubling < 6; ++doubling) {
      work.links.intra_bytes_per_second *= 2;
      work.links.inter_bytes_per_second *= 2;
      work.links.latency_seconds /= 2;
      const double seconds = simulate_iteration(work).seconds;
      EXPECT_LE(seconds, last + kTiny);
      last = seconds;
    }
  });
}

TEST(IterationOrder, MoreSlotsAreNotSlower) {
  each_work_apart(
      3, [](const IterationWork& work) { expect_slots_help(work, 1); });
}

TEST(IterationOrder, WhatMeetingAtAPortCostsIsSmall) {
  Random random(4);
  for (int trial = 0; trial < kTrials; ++trial) {
    SCOPED_TRACE(trial);
    const IterationWork work = random_work(random, true);
    EXPECT_LE(simulate_with(work, Overlap::kBackground).seconds,
              simulate_with(work, Overlap::kMain).seconds * kSmall + kTiny);
    expect_slots_help(work, kSmall);
  }
}

}  // namespace
}  // namespace canzona::sim::iteration_order_test

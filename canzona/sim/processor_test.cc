#include "canzona/sim/ports.h"

#include <gtest/gtest.h>

namespace canzona::processor_test {
namespace {

struct Ends {
  double work = -1, copies = -1;
};

// 10 seconds of work; from `from` on, `copiers` threads copy for some seconds.
Ends run(double slowdown, int copiers, double from, double seconds) {
  EventQueue events;
  Processor processor(events, slowdown);
  Ends ends;
  processor.start(10, [&] { ends.work = events.now(); });
  events.at(from, [&] {
    for (int i = 0; i < copiers; ++i)
      processor.copy(seconds, [&] { ends.copies = events.now(); });
  });
  while (events.run_next()) {
  }
  EXPECT_FALSE(processor.is_busy());
  return ends;
}

TEST(Processor, WithCoresForAllNobodyIsSlowedDown) {
  EXPECT_EQ(run(0, 2, 2, 4).work, 10);
  EXPECT_EQ(run(0, 2, 2, 4).copies, 6);
}

TEST(Processor, OnOneCoreThreadsTakeTurns) {
  const Ends one = run(1, 1, 2, 4);  // 8 and 4 left, half the speed each
  EXPECT_DOUBLE_EQ(one.copies, 10);
  EXPECT_DOUBLE_EQ(one.work, 14);
  const Ends two = run(1, 2, 4, 2);
  EXPECT_DOUBLE_EQ(two.copies, 10);
  EXPECT_DOUBLE_EQ(two.work, 14);
}

TEST(Processor, WhatEndsFirstLeavesTheCoreToOthers) {
  const Ends ends = run(1, 1, 8, 5);  // 2 left
  EXPECT_DOUBLE_EQ(ends.work, 12);
  EXPECT_DOUBLE_EQ(ends.copies, 15);
}

TEST(Processor, SlowdownIsPaidForEveryOther) {
  const Ends ends = run(0.5, 1, 2, 4);
  EXPECT_DOUBLE_EQ(ends.copies, 8);  // 4 · 1.5 seconds
  EXPECT_DOUBLE_EQ(ends.work, 12);
}

TEST(Processor, CopiesAloneAreNotSlowedDown) {
  const Ends ends = run(1, 1, 12, 3);
  EXPECT_EQ(ends.work, 10);
  EXPECT_EQ(ends.copies, 15);
}

TEST(Processor, NothingEndsAtOnce) {
  EXPECT_EQ(run(1, 3, 4, 0).copies, 4);
  EXPECT_EQ(run(1, 3, 4, 0).work, 10);
}

}  // namespace
}  // namespace canzona::processor_test

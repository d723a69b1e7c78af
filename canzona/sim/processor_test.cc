#include "canzona/sim/processor.h"

#include <gtest/gtest.h>

namespace canzona {
namespace {

// When 10 seconds of work end, of which a thread copies [from, to).
double end_of_work(double slowdown, int copiers, double from, double to) {
  EventQueue events;
  Processor processor(events, slowdown);
  double end = -1;
  processor.start(10, [&] { end = events.now(); });
  events.at(from, [&] { processor.copying(+copiers); });
  events.at(to, [&] { processor.copying(-copiers); });
  while (events.run_next()) {
  }
  EXPECT_FALSE(processor.is_busy());
  return end;
}

TEST(Processor, IsNotSlowedDownWithoutReason) {
  EXPECT_EQ(end_of_work(0, 1, 2, 6), 10);
  EXPECT_EQ(end_of_work(0.5, 1, 12, 16), 10);
}

TEST(Processor, LosesAShareOfEverySecondOfCopying) {
  EXPECT_DOUBLE_EQ(end_of_work(0.5, 1, 2, 6), 12);
  EXPECT_DOUBLE_EQ(end_of_work(0.25, 2, 2, 6), 12);
  EXPECT_DOUBLE_EQ(end_of_work(0.5, 1, 8, 20), 12);
}

TEST(Processor, StandsStillAtWorst) {
  EXPECT_DOUBLE_EQ(end_of_work(1, 1, 2, 6), 14);
  EXPECT_DOUBLE_EQ(end_of_work(3, 2, 2, 6), 14);
}

TEST(Processor, CopiesBeforeItsWorkCount) {
  EventQueue events;
  Processor processor(events, 0.5);
  processor.copying(+1);
  double end = -1;
  processor.start(1, [&] { end = events.now(); });
  while (events.run_next()) {
  }
  EXPECT_EQ(end, 2);
}

}  // namespace
}  // namespace canzona

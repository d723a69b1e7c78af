#include "canzona/comm/thread/busy_times.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace canzona {
namespace {

using Time = BusyTimes::Time;

Time at(int64_t time) { return Time{time}; }

TEST(BusyTimes, GapsAreFilled) {
  BusyTimes one, none;
  one.add(at(0), at(10));
  one.add(at(30), at(40));
  EXPECT_EQ(first_free(one, none, at(0), at(20)), at(10));
  EXPECT_EQ(first_free(none, one, at(0), at(21)), at(40));
  EXPECT_EQ(first_free(one, none, at(12), at(18)), at(12));
  EXPECT_EQ(first_free(one, none, at(35), at(5)), at(40));
  EXPECT_EQ(first_free(one, none, at(15), at(0)), at(15));
  one.add(at(10), at(30));
  EXPECT_EQ(first_free(one, none, at(0), at(1)), at(40));
}

TEST(BusyTimes, BothMustBeFree) {
  BusyTimes a, b;
  a.add(at(0), at(10));
  b.add(at(15), at(30));
  a.add(at(33), at(50));
  EXPECT_EQ(first_free(a, b, at(0), at(5)), at(10));
  EXPECT_EQ(first_free(a, b, at(0), at(6)), at(50));
  EXPECT_EQ(first_free(a, b, at(0), at(3)), at(10));
  EXPECT_EQ(first_free(a, b, at(11), at(3)), at(11));
  EXPECT_EQ(first_free(a, b, at(13), at(3)), at(30));
}

// Whatever was forgotten, nothing is given twice.
TEST(BusyTimes, NeverOverlapHoweverManyThereAre) {
  std::mt19937 random(5);
  BusyTimes port, other;
  std::vector<std::pair<Time, Time>> given;
  for (int i = 0; i < 2000; ++i) {
    const Time duration = at(1 + static_cast<int64_t>(random() % 50));
    const Time ready = at(static_cast<int64_t>(random() % 100000));
    const Time begin = first_free(port, other, ready, duration);
    EXPECT_GE(begin, ready);
    for (const auto& [from, to] : given)
      EXPECT_TRUE(begin + duration <= from || to <= begin);
    given.emplace_back(begin, begin + duration);
    port.add(begin, begin + duration);
  }
}

}  // namespace
}  // namespace canzona

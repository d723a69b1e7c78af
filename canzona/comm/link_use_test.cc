#include "canzona/comm/link_use.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace canzona::comm::link_use_test {
namespace {

using Time = LinkUse::Time;

Time at(int64_t time) { return Time{time}; }

TEST(LinkUse, WhatOverlapsCountsOnce) {
  LinkUse use;
  EXPECT_EQ(use.busy(at(100)), at(0));
  use.add(at(10), at(20));
  use.add(at(30), at(40));
  EXPECT_EQ(use.busy(at(100)), at(20));
  use.add(at(15), at(35));
  EXPECT_EQ(use.busy(at(100)), at(30));
  use.add(at(12), at(38));
  EXPECT_EQ(use.busy(at(100)), at(30));
}

TEST(LinkUse, CountsUpToNow) {
  LinkUse use;
  use.add(at(10), at(20));
  use.add(at(30), at(40));
  EXPECT_EQ(use.busy(at(5)), at(0));
  EXPECT_EQ(use.busy(at(15)), at(5));
  EXPECT_EQ(use.busy(at(25)), at(10));
  EXPECT_EQ(use.busy(at(31)), at(11));
}

TEST(LinkUse, NothingIsNotBusy) {
  LinkUse use;
  use.add(at(10), at(10));
  use.add(at(10), at(5));
  EXPECT_EQ(use.busy(at(100)), at(0));
}

// The oracle has one flag for every unit of time, while nothing old is
// forgotten.
TEST(LinkUse, IsTheUnion) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    LinkUse use;
    std::vector<bool> busy(300, false);
    for (int i = 0; i < 60; ++i) {
      const size_t begin = random() % 250;
      const size_t end = begin + random() % 8;
      use.add(at(static_cast<int64_t>(begin)), at(static_cast<int64_t>(end)));
      for (size_t t = begin; t < end; ++t) busy[t] = true;
      const size_t now = random() % 300;
      int64_t sum = 0;
      for (size_t t = 0; t < now; ++t) sum += busy[t] ? 1 : 0;
      ASSERT_EQ(use.busy(at(static_cast<int64_t>(now))).count(), sum);
    }
  }
}

TEST(LinkUse, KeepsTheTimeOfWhatIsLongPast) {
  LinkUse use;
  for (int64_t i = 0; i < 1000; ++i) use.add(at(10 * i), at(10 * i + 3));
  EXPECT_EQ(use.busy(at(100000)), at(3000));
  use.add(at(0), at(4));  // before all that is remembered
  EXPECT_EQ(use.busy(at(100000)), at(3000));
}

}  // namespace
}  // namespace canzona::comm::link_use_test

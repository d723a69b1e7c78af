#include "canzona/linalg/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "canzona/base/error.h"

namespace canzona::linalg::lanes_test {
namespace {

Lanes cpu_lanes(int num_lanes) {
  return Lanes(num_lanes, [] { return make_cpu_engine(); });
}

TEST(Lanes, DoEveryItemOnce) {
  for (int num_lanes : {1, 2, 4, 7}) {
    Lanes lanes = cpu_lanes(num_lanes);
    for (int64_t num_items : {0, 1, 2, 3, 100}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(num_items));
      lanes.for_each(num_items, [&](Engine&, int64_t item) {
        ++done[static_cast<size_t>(item)];
      });
      for (const std::atomic<int>& count : done) EXPECT_EQ(count, 1);
    }
  }
}

TEST(Lanes, GiveNoEngineToTwoItemsAtOnce) {
  Lanes lanes = cpu_lanes(4);
  std::mutex mutex;
  std::multiset<Engine*> busy;
  bool clash = false;
  lanes.for_each(200, [&](Engine& engine, int64_t) {
    {
      std::lock_guard lock(mutex);
      clash = clash || busy.count(&engine) != 0;
      busy.insert(&engine);
    }
    std::lock_guard lock(mutex);
    busy.erase(&engine);
  });
  EXPECT_FALSE(clash);
}

TEST(Lanes, ALaneIsOneOfTheEnginesMade) {
  Lanes lanes = cpu_lanes(3);
  ASSERT_EQ(lanes.num_lanes(), 3);
  std::atomic<int> strangers = 0;
  lanes.for_each(50, [&](Engine& engine, int64_t) {
    if (&engine != &lanes.lane(0) && &engine != &lanes.lane(1) &&
        &engine != &lanes.lane(2))
      ++strangers;
  });
  EXPECT_EQ(strangers, 0);
}

std::string failure_of(Lanes& lanes, const Lanes::Work& work) {
  try {
    lanes.for_each(64, work);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Lanes, RethrowTheLowestOfManyFailures) {
  for (int num_lanes : {1, 2, 5}) {
    Lanes lanes = cpu_lanes(num_lanes);
    for (int round = 0; round < 20; ++round) {
      const auto fail_from_13 = [](Engine&, int64_t item) {
        if (item >= 13) throw std::runtime_error(std::to_string(item));
      };
      EXPECT_EQ(failure_of(lanes, fail_from_13), "13");
    }
  }
}

TEST(Lanes, ThrowOnlyAfterAllLanesHaveStopped) {
  Lanes lanes = cpu_lanes(4);
  std::atomic<int> running = 0;
  const auto fail_often = [&](Engine&, int64_t item) {
    ++running;
    std::this_thread::yield();
    --running;
    if (item % 3 == 2) throw std::runtime_error(std::to_string(item));
  };
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(failure_of(lanes, fail_often), "2");
    EXPECT_EQ(running, 0);
  }
}

TEST(Lanes, WorkAgainAfterAFailure) {
  Lanes lanes = cpu_lanes(2);
  const auto fail = [](Engine&, int64_t) { throw std::runtime_error("once"); };
  EXPECT_EQ(failure_of(lanes, fail), "once");
  std::atomic<int> done = 0;
  lanes.for_each(10, [&](Engine&, int64_t) { ++done; });
  EXPECT_EQ(done, 10);
}

TEST(Lanes, NeedAtLeastOneEngine) { EXPECT_THROW(cpu_lanes(0), InternalError); }

}  // namespace
}  // namespace canzona::linalg::lanes_test

#include "canzona/comm/link_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace canzona::comm::busy_times_test {
namespace {

using Time = BusyTimes::Time;

Time at(int64_t time) { return Time{time}; }

TEST(BusyTimes, GapsAreFilledPieceByPiece) {
  BusyTimes port;
  EXPECT_EQ(port.book(at(0), at(10)), at(10));
  EXPECT_EQ(port.book(at(30), at(10)), at(40));
  EXPECT_EQ(port.book(at(50), at(10)), at(60));
  EXPECT_EQ(port.book(at(15), at(5)), at(20));
  EXPECT_EQ(port.book(at(0), at(5)), at(15));
  // 20 to 30, 40 to 50, then the last three.
  EXPECT_EQ(port.book(at(5), at(23)), at(63));
  EXPECT_EQ(port.book(at(0), at(1)), at(64));
  EXPECT_EQ(port.book(at(70), at(0)), at(70));
  EXPECT_EQ(port.book(at(5), at(0)), at(5));
}

// The oracle is unlimited and has one flag for every unit of time.
class OracleTimes {
 public:
  int64_t book(int64_t ready, int64_t duration) {
    int64_t time = ready;
    for (; duration > 0; ++time) {
      if (std::cmp_greater_equal(time, busy_.size()))
        busy_.resize(2 * time + 9);
      if (busy_[static_cast<size_t>(time)]) continue;
      busy_[static_cast<size_t>(time)] = true;
      --duration;
    }
    return time;
  }

 private:
  std::vector<bool> busy_;
};

TEST(BusyTimes, TakeTheFirstFreeTime) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    BusyTimes port;
    OracleTimes oracle;
    for (int i = 0; i < 200; ++i) {
      const auto duration = static_cast<int64_t>(1 + random() % 30);
      const auto ready = static_cast<int64_t>(random() % (100 + 40 * seed));
      ASSERT_EQ(port.book(at(ready), at(duration)).count(),
                oracle.book(ready, duration));
    }
  }
}

// A rank's gather, scatter and step threads, each with 15 peers: messages are
// ready in rounds, short and with pauses, and are booked in any order, late by
// up to three rounds of all threads.
TEST(BusyTimes, LoseNoTimeToManyThreadsAndPeers) {
  struct Message {
    int64_t ready, duration;
  };
  constexpr int kThreads = 4, kPeers = 15, kRounds = 60;
  std::mt19937 random(9);
  std::vector<Message> messages;
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < kThreads * kPeers; ++i)
      messages.push_back({round * 2000 + static_cast<int64_t>(random() % 2000),
                          static_cast<int64_t>(1 + random() % 20)});
  constexpr auto kLate = std::ptrdiff_t{3} * kThreads * kPeers;
  for (auto i = messages.begin(); messages.end() - i >= kLate; i += kLate)
    std::shuffle(i, i + kLate, random);
  BusyTimes port;
  OracleTimes oracle;
  for (const Message& m : messages)
    ASSERT_EQ(port.book(at(m.ready), at(m.duration)).count(),
              oracle.book(m.ready, m.duration));
}

// Whatever was forgotten, no time is booked twice: between any two times there
// is room for everything that was ready after the first and done by the second.
TEST(BusyTimes, NeverGiveMoreThanThereIs) {
  struct Given {
    int64_t ready, duration, end;
  };
  std::mt19937 random(5);
  BusyTimes port;
  std::vector<Given> given;
  for (int i = 0; i < 1500; ++i) {
    const auto duration = static_cast<int64_t>(1 + random() % 50);
    const auto ready = static_cast<int64_t>(random() % 100000);
    const Time end = port.book(at(ready), at(duration));
    EXPECT_GE(end, at(ready + duration));
    given.push_back({ready, duration, end.count()});
  }
  std::ranges::sort(given, {}, &Given::end);
  for (size_t i = 0; i < given.size(); i += 7) {
    int64_t sum = 0;
    for (const Given& g : given) {
      if (g.ready < given[i].ready) continue;
      sum += g.duration;
      EXPECT_LE(sum, g.end - given[i].ready);
    }
  }
}

}  // namespace
}  // namespace canzona::comm::busy_times_test

// Modelled links between ranks whose messages are only enqueued: tests check
// how much clock time exchanges take, never how long this process takes.
#include "canzona/comm/thread/link_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/test_lane.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/comm/thread/test_clock.h"

namespace canzona::comm::lane_pacer_test {
namespace {

using std::chrono::nanoseconds;

// Nanoseconds; a byte takes one.
constexpr int64_t kLatency = 100;
constexpr int64_t kOverhead = 10;

// A lane may still query another one that has finished, so all are kept until
// the end.
class KeptLanes {
 public:
  std::shared_ptr<TestLane> make() {
    const std::lock_guard lock(mutex_);
    return lanes_.emplace_back(
        std::make_shared<TestLane>(TestLane::When::kLater));
  }
  void wait() {
    for (const auto& lane : lanes_) lane->wait();
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<TestLane>> lanes_;
};

// Ranks on one node with a lane each, and a thread that advances time while it
// is told to.
class PacedRanks {
 public:
  explicit PacedRanks(int num_ranks) : size(num_ranks), meeting(num_ranks) {
    options_.world.link = LinkModel{1e9, 1e9, kLatency * 1e-9, num_ranks};
    options_.world.clocks.assign(static_cast<size_t>(num_ranks), &clock);
    options_.world.on_pacer = [this](LanePacer& pacer) { pacer_ = &pacer; };
  }

  struct Rank {
    Communicator& world;
    std::shared_ptr<TestLane> lane;
    std::unique_ptr<Communicator> group;
    int64_t begin = 0;  // when all ranks have arrived
  };
  void run(const std::function<void(Rank&)>& function) {
    run_ranks(size, options_, [&](Communicator& world) {
      Rank rank{world, lanes.make(), {}};
      rank.group = world.split_ordered(0, world.rank(), "lanes", rank.lane);
      meeting.arrive_and_wait();
      rank.begin = clock.now().count();
      meeting.arrive_and_wait();
      function(rank);
    });
  }
  // Waits until the lane has done its work; returns the time.
  int64_t pass_time(Rank& rank) {
    std::jthread passes([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        pacer_.load()->pass_time();
        std::this_thread::yield();
      }
    });
    rank.lane->wait();
    return clock.now().count();
  }

  const int size;
  SharedTestClock clock;
  KeptLanes lanes;
  std::barrier<> meeting;

 private:
  RunOptions options_;
  std::atomic<LanePacer*> pacer_ = nullptr;
};

using Bytes = std::vector<std::byte>;

struct Case {
  const char* name;
  // Move a rank's 120 floats or bytes, and return how long that takes.
  std::function<void(PacedRanks::Rank&, Bytes& small, Bytes& large)> call;
  std::function<int64_t(int64_t ranks)> time;
  // Receivers of a broadcast do not wait for each other, so lanes may reach it
  // after time has passed: then it takes up to this.
  std::function<int64_t(int64_t ranks)> most = time;
};

int64_t messages(int64_t ranks, int64_t bytes) {
  return (ranks - 1) * (kOverhead + bytes) + kLatency;
}
// The time if each begins when the previous one has arrived: a lane that comes
// late.
int64_t messages_in_turn(int64_t ranks, int64_t bytes) {
  return (ranks - 1) * (kOverhead + bytes + kLatency);
}

std::vector<int64_t> each(const PacedRanks::Rank& rank, int64_t count) {
  return std::vector<int64_t>(static_cast<size_t>(rank.world.size()), count);
}

const std::vector<Case> kCases = {
    {"all_gather",
     [](auto& rank, Bytes& small, Bytes& large) {
       rank.group->all_gather_v(small, each(rank, 480), large);
     },
     [](int64_t ranks) { return messages(ranks, 480); }},
    {"broadcast",
     [](auto& rank, Bytes& small, Bytes&) { rank.group->broadcast(0, small); },
     [](int64_t ranks) { return messages(ranks, 480); },
     [](int64_t ranks) { return messages_in_turn(ranks, 480); }},
    {"reduce_scatter",
     [](auto& rank, Bytes& small, Bytes& large) {
       rank.group->reduce_scatter_v(Reduction::kFp32Sum, large, each(rank, 120),
                                    small);
     },
     [](int64_t ranks) { return messages(ranks, 480); }},
    {"reduce_scatter of bf16",
     [](auto& rank, Bytes& small, Bytes& large) {
       rank.group->reduce_scatter_v(Reduction::kFp32SumOfBf16, large,
                                    each(rank, 120), small);
     },
     [](int64_t ranks) { return messages(ranks, 240); }},
    {"all_reduce",
     [](auto& rank, Bytes&, Bytes& large) {
       rank.group->all_reduce(Reduction::kFp32Sum, large);
     },
     [](int64_t ranks) { return 2 * messages(ranks, 480); }}};

TEST(LanePacer, AnExchangeTakesWhatItsBusiestPortTakes) {
  for (const int ranks : {2, 3, 4, 7})
    for (const Case& of : kCases) {
      PacedRanks paced(ranks);
      paced.run([&](PacedRanks::Rank& rank) {
        Bytes small(480), large(480 * static_cast<size_t>(ranks));
        of.call(rank, small, large);
        paced.pass_time(rank);
        paced.meeting.arrive_and_wait();
        const int64_t took = paced.clock.now().count() - rank.begin;
        EXPECT_GE(took, of.time(ranks)) << of.name << " over " << ranks;
        EXPECT_LE(took, of.most(ranks)) << of.name << " over " << ranks;
        paced.meeting.arrive_and_wait();
      });
    }
}

TEST(LanePacer, WhoIssuesDoesNotWait) {
  PacedRanks paced(3);
  paced.run([&](PacedRanks::Rank& rank) {
    Bytes small(480), large(480 * 3);
    const std::unique_ptr<Mark> first = rank.lane->make_mark(),
                                second = rank.lane->make_mark();
    rank.group->all_gather_v(small, each(rank, 480), large);
    rank.lane->record(*first);
    rank.group->all_gather_v(small, each(rank, 480), large);
    rank.lane->record(*second);
    EXPECT_FALSE(first->reached());  // no time has passed
    EXPECT_EQ(paced.clock.now().count(), rank.begin);
    paced.meeting.arrive_and_wait();
    const int64_t end = paced.pass_time(rank);
    EXPECT_TRUE(first->reached());
    EXPECT_TRUE(second->reached());
    EXPECT_EQ(end - rank.begin, 2 * messages(3, 480));
    EXPECT_GT(rank.group->links_busy().count(), 0);
    paced.meeting.arrive_and_wait();
  });
}

// The messages between the other two may have passed before it came, so these
// wait for one message each or for both.
TEST(LanePacer, AnExchangeWaitsForTheLastOfItsRanks) {
  constexpr int64_t kLate = 5000;
  constexpr int kLast = 1;
  PacedRanks paced(3);
  paced.run([&](PacedRanks::Rank& rank) {
    if (rank.world.rank() == kLast)
      rank.lane->issue([&clock = paced.clock, begin = rank.begin] {
        clock.sleep_until(nanoseconds(begin + kLate));
      });
    Bytes small(480), large(480 * 3);
    rank.group->all_gather_v(small, each(rank, 480), large);
    const int64_t took = paced.pass_time(rank) - rank.begin;
    const int64_t least = rank.world.rank() == kLast ? 3 : 2;
    EXPECT_GE(took, kLate + messages(least, 480));
    EXPECT_LE(took, kLate + messages(3, 480));
    paced.meeting.arrive_and_wait();
  });
}

TEST(LanePacer, LanesOfARankShareItsPorts) {
  PacedRanks paced(2);
  paced.run([&](PacedRanks::Rank& rank) {
    const auto other = paced.lanes.make();
    const auto beside =
        rank.world.split_ordered(0, rank.world.rank(), "beside", other);
    paced.meeting.arrive_and_wait();
    const int64_t begin = paced.clock.now().count();
    paced.meeting.arrive_and_wait();
    Bytes small(480), large(480 * 2), small2(480), large2(480 * 2);
    rank.group->all_gather_v(small, each(rank, 480), large);
    beside->all_gather_v(small2, each(rank, 480), large2);
    paced.pass_time(rank);
    PacedRanks::Rank second{rank.world, other, {}};
    const int64_t took = paced.pass_time(second) - begin;
    EXPECT_GE(took, messages(3, 480));  // one after the other
    EXPECT_LE(took, messages_in_turn(3, 480));
    paced.meeting.arrive_and_wait();
  });
}

// Data is kept until all lanes are done with it.
TEST(LanePacer, WhoGivesUpLetsLanesGoOn) {
  std::vector<Bytes> small(3, Bytes(480)), large(3, Bytes(480 * 3));
  PacedRanks paced(3);
  const auto run = [&](PacedRanks::Rank& rank) {
    const auto own = static_cast<size_t>(rank.world.rank());
    rank.group->all_gather_v(small[own], each(rank, 480), large[own]);
    paced.meeting.arrive_and_wait();
    if (own == 1) throw UsageError("no more memory");
    rank.lane->wait();  // no time passes
  };
  EXPECT_THROW(paced.run(run), UsageError);
  paced.lanes.wait();
}

// In real time, with almost none modelled: checks data and order.
TEST(LanePacer, AClockOfItsOwnEndsEveryExchange) {
  RunOptions options;
  options.world.link = LinkModel{1e12, 1e11, 1e-6, 2};
  KeptLanes lanes;
  run_ranks(4, options, [&](Communicator& world) {
    const auto lane = lanes.make();
    const auto group = world.split_ordered(0, world.rank(), "lanes", lane);
    std::vector<float> sum(40);
    for (int i = 1; i <= 20; ++i) {
      lane->issue([&] { sum.assign(40, static_cast<float>(world.rank())); });
      group->all_reduce(Reduction::kFp32Sum,
                        std::as_writable_bytes(std::span(sum)));
      lane->issue([&] { EXPECT_EQ(sum, std::vector<float>(40, 6)); });
    }
    lane->wait();
    // Overheads of a tenth of a microsecond.
    EXPECT_GE(group->links_busy().count(), 20 * 2 * 2 * 100);
  });
}

}  // namespace
}  // namespace canzona::comm::lane_pacer_test

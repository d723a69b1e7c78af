// Tests of the speed of modelled links for whole collectives, and for several
// threads of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "canzona/comm/courier.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/comm/thread/test_clock.h"

namespace canzona::comm::link_ports_test {
namespace {

using std::chrono::nanoseconds;
using testing::Each;
using testing::UnorderedElementsAre;

// Once enabled, stands still until this many threads wait for the link, so that
// all have posted at the same time.
class MeetingClock final : public LinkClock {
 public:
  void meet(int num_threads) { all_wait_.emplace(num_threads); }
  nanoseconds now() override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void sleep_until(nanoseconds time) override {
    if (all_wait_) all_wait_->arrive_and_wait();
    const std::lock_guard lock(mutex_);
    if (all_wait_) arrivals.push_back(time.count());
    now_ = std::max(now_, time);
  }

  std::vector<int64_t> arrivals;

 private:
  std::optional<std::barrier<>> all_wait_;
  std::mutex mutex_;
  nanoseconds now_{0};
};

// Rank 0 sends 100 bytes to each of three others, in a group and on a thread
// for each. Every rank is a node; an overhead of 1 ns, 1 ns per byte, 10 ns
// until it has arrived.
TEST(LinkPorts, AreSharedByTheGroupsAndThreadsOfARank) {
  constexpr nanoseconds kBegin{1'000'000};
  MeetingClock sender;
  std::deque<TestClock> receivers(3);
  RunOptions options;
  options.world.link = LinkModel{1e9, 1e9, 10e-9, 1};
  options.world.clocks = {&sender};
  for (TestClock& clock : receivers) options.world.clocks.push_back(&clock);
  run_ranks(4, options, [&](Communicator& world) {
    const int rank = world.rank();
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int peer = 1; peer < 4; ++peer)
      groups.push_back(
          world.split(rank == 0 || rank == peer ? 0 : -1, rank, "pair"));
    options.world.clocks[static_cast<size_t>(rank)]->sleep_until(kBegin);
    if (rank == 0) sender.meet(3);
    std::vector<std::byte> data(100);
    std::deque<Courier> couriers;
    for (const auto& group : groups)
      if (group != nullptr) couriers.emplace_back(*group, 1);
    for (Courier& courier : couriers) courier.broadcast(0, data);
  });
  EXPECT_THAT(sender.arrivals,
              UnorderedElementsAre(1'000'111, 1'000'212, 1'000'313));
  std::vector<int64_t> times;
  for (TestClock& clock : receivers) times.push_back(clock.now().count());
  EXPECT_THAT(times, UnorderedElementsAre(1'000'111, 1'000'212, 1'000'313));
}

// A pass of sums of 4 MiB over 4 ranks: 3 MiB leave each rank, in 12 messages
// of four segments, each of which is posted when the previous one has arrived.
constexpr int64_t kPassTime = (3 << 20) + 12 * 500 + 4 * 5000;

// Wakes up 50 us late.
class LateClock final : public LinkClock {
 public:
  nanoseconds now() override { return now_; }
  void sleep_until(nanoseconds time) override {
    now_ = std::max(now_, time) + nanoseconds{50'000};
  }

 private:
  nanoseconds now_{0};
};

template <class AClock>
std::vector<int64_t> times_of_sums() {
  std::deque<AClock> clocks(4);
  RunOptions options;
  options.world.link = LinkModel{1e9, 1e9, 5e-6, 4};
  for (AClock& clock : clocks) options.world.clocks.push_back(&clock);
  run_ranks(4, options, [](Communicator& world) {
    std::vector<std::byte> input(4 << 20), sum(1 << 20);
    const std::vector<int64_t> counts(4, 1 << 18);
    world.reduce_scatter_v(Reduction::kFp32Sum, input, counts, sum);
  });
  std::vector<int64_t> times;
  for (AClock& clock : clocks) times.push_back(clock.now().count());
  return times;
}

// Whatever the order of arrival, ports are busy all the time.
TEST(LinkPorts, SumsReachTheBandwidth) {
  for (int trial = 0; trial < 10; ++trial)
    EXPECT_THAT(times_of_sums<TestClock>(), Each(kPassTime));
}

// On the link, segments follow each other without waiting for the late thread.
TEST(LinkPorts, AThreadThatWakesUpLateIsLateOnce) {
  EXPECT_THAT(times_of_sums<LateClock>(), Each(kPassTime + 50'000));
}

TEST(LinkPorts, GathersReachTheBandwidth) {
  constexpr int kRanks = 8;
  for (int ranks_per_node : {1, 2, 8}) {
    std::deque<TestClock> clocks(kRanks);
    RunOptions options;
    options.world.link = LinkModel{1e9, 0.5e9, 0, ranks_per_node};
    for (TestClock& clock : clocks) options.world.clocks.push_back(&clock);
    run_ranks(kRanks, options, [](Communicator& world) {
      std::vector<std::byte> own(1000), whole(kRanks * 1000);
      world.all_gather_v(own, std::vector<int64_t>(kRanks, 1000), whole);
    });
    // 1000 ns inside, 2000 ns between.
    const int64_t inside = ranks_per_node - 1, outside = kRanks - 1 - inside;
    for (TestClock& clock : clocks)
      EXPECT_EQ(clock.now().count(), std::max(1000 * inside, 2000 * outside));
  }
}

}  // namespace
}  // namespace canzona::comm::link_ports_test

#include "canzona/comm/thread/link_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <latch>
#include <random>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/test_host_ops.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/comm/thread/test_clock.h"

namespace canzona::comm::link_model_test {
namespace {

using std::chrono::nanoseconds;
using testing::HasSubstr;

TEST(LinkModel, IsReadFromText) {
  const LinkModel link = parse_link_model(
      "intra=2GB/s,inter=0.2GB/s,latency=20us,ranks_per_node=4");
  EXPECT_EQ(link.intra_bytes_per_second, 2e9);
  EXPECT_EQ(link.inter_bytes_per_second, 2e8);
  EXPECT_EQ(link.latency_seconds, 20e-6);
  EXPECT_EQ(link.ranks_per_node, 4);
  EXPECT_EQ(parse_link_model("inter=1GB/s,intra=1GB/s").latency_seconds, 0);
}

std::string refusal(const std::string& text) {
  try {
    parse_link_model(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LinkModel, NamesWhatIsWrong) {
  EXPECT_THAT(refusal("intra=2GB/s"), HasSubstr("inter= is missing"));
  EXPECT_THAT(refusal(""), HasSubstr("expected name=value"));
  EXPECT_THAT(refusal("intra=2GB/s,inter=2GB/s,latancy=1us"),
              HasSubstr("did you mean 'latency'"));
  EXPECT_THAT(refusal("intra=fast,inter=2GB/s"), HasSubstr("link intra"));
  EXPECT_THAT(refusal("intra=1GB/s,intra=2GB/s,inter=2GB/s"),
              HasSubstr("intra comes twice"));
  EXPECT_THAT(refusal("intra=1GB/s,inter=2GB/s,ranks_per_node=0"),
              HasSubstr("ranks_per_node"));
}

// An overhead of 1 ns, 1 ns per byte inside a node of two, 4 ns per byte
// between nodes, and 10 ns until it has arrived.
constexpr LinkModel kLink = {1e9, 0.25e9, 10e-9, 2};

TEST(LinkSchedule, AMessageTakesOverheadBytesAndLatency) {
  LinkSchedule schedule(kLink, 4);
  EXPECT_EQ(schedule.book(0, 1, 100, nanoseconds{5}).arrival(),
            nanoseconds{116});
  EXPECT_EQ(schedule.book(0, 2, 100, nanoseconds{5}).arrival(),
            nanoseconds{416});
}

TEST(LinkSchedule, APortServesOneMessageAfterTheOther) {
  LinkSchedule schedule(kLink, 6);
  // One sender, two receivers of other nodes.
  EXPECT_EQ(schedule.book(0, 2, 10, nanoseconds{0}).arrival(), nanoseconds{51});
  // It waits for the first one's 41 ns, but not for its latency.
  EXPECT_EQ(schedule.book(0, 4, 10, nanoseconds{0}).arrival(), nanoseconds{92});
  // Receiving port 4 is busy until 41, sending port 3 is not.
  EXPECT_EQ(schedule.book(3, 4, 10, nanoseconds{0}).arrival(), nanoseconds{92});
  EXPECT_EQ(schedule.book(5, 4, 10, nanoseconds{0}).arrival(), nanoseconds{21});
  EXPECT_EQ(schedule.book(3, 4, 10, nanoseconds{0}).arrival(),
            nanoseconds{133});
  EXPECT_EQ(schedule.book(4, 1, 10, nanoseconds{0}).arrival(), nanoseconds{51});
  // Its own node has separate ports.
  EXPECT_EQ(schedule.book(0, 1, 10, nanoseconds{0}).arrival(), nanoseconds{21});
  // Later than everything booked before.
  EXPECT_EQ(schedule.book(0, 2, 10, nanoseconds{1000}).arrival(),
            nanoseconds{1051});
}

// An all-to-all, in whatever order messages come.
TEST(LinkSchedule, AnExchangeTakesWhatTheBusiestPortTakes) {
  constexpr int kRanks = 8;
  std::vector<std::pair<int, int>> pairs;
  for (int from = 0; from < kRanks; ++from)
    for (int to = 0; to < kRanks; ++to)
      if (from != to) pairs.emplace_back(from, to);
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(pairs.begin(), pairs.end(), random);
    LinkSchedule schedule({1e9, 1e9, 0, kRanks}, kRanks);
    nanoseconds last{0};
    for (const auto& [from, to] : pairs)
      last = std::max(last,
                      schedule.book(from, to, 100, nanoseconds{0}).arrival());
    EXPECT_EQ(last, nanoseconds{100 * (kRanks - 1)});
  }
}

// Runs on test clocks and returns each rank's time afterwards.
std::vector<int64_t> times_after(int num_ranks, const RankFunction& function) {
  std::deque<TestClock> clocks(static_cast<size_t>(num_ranks));
  RunOptions options;
  options.world.link = kLink;
  for (TestClock& clock : clocks) options.world.clocks.push_back(&clock);
  run_ranks(num_ranks, options, function);
  std::vector<int64_t> times;
  for (TestClock& clock : clocks) times.push_back(clock.now().count());
  return times;
}

TEST(Links, PostponeTheEndOfAnOperation) {
  const auto gather = [](Communicator& world) {
    std::vector<std::byte> own(100), all(200);
    world.all_gather_v(own, std::vector<int64_t>{100, 100}, all);
  };
  EXPECT_THAT(times_after(2, gather), testing::Each(111));
}

TEST(Links, AddUpOverOperationsAndSegments) {
  const auto reduce = [](Communicator& world) {
    // Shares of 200 bytes there (211 ns) and back (211 ns), then a meeting of
    // one byte (12 ns).
    std::vector<float> data = test_piece(world.rank(), 100);
    world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
    world.barrier();
    EXPECT_TRUE(same_bits(data[7], oracle_at(2, 7)));
  };
  EXPECT_THAT(times_after(2, reduce), testing::Each(434));
}

TEST(Links, ARootSendsOneAfterTheOther) {
  const auto send = [](Communicator& world) {
    std::vector<std::byte> data(10);
    world.broadcast(0, data);
  };
  // To its neighbour 21 ns; to two others 41 ns of a port each, in whichever
  // order they come, and 10 ns.
  const std::vector<int64_t> times = times_after(4, send);
  EXPECT_EQ(times[0], 92);
  EXPECT_EQ(times[1], 21);
  EXPECT_EQ(times[2] + times[3], 51 + 92);
}

TEST(Links, WorkInRealTime) {
  RunOptions options;
  options.world.link = kLink;
  run_ranks(4, options, [](Communicator& world) {
    std::vector<float> data = test_piece(world.rank(), 100);
    world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
    EXPECT_TRUE(same_bits(data[7], oracle_at(4, 7)));
  });
}

// The CPU's operations, with a count of the messages moved.
class CountingOps final : public HostOps {
 public:
  explicit CountingOps(std::latch& moved) : moved_(moved) {}

  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    HostOps::copy(to, from, bytes);
    if (bytes > 0) moved_.count_down();
  }

 private:
  std::latch& moved_;
};

TEST(Links, AnAbortEndsTheWaitForALink) {
  std::latch moved(2);
  const CountingOps ops(moved);
  RunOptions options;
  options.world.link = {1e-3, 1e-3, 0, 2};  // a byte takes 1000 s
  options.world.ops = &ops;
  const auto fail = [&](Communicator& world) {
    if (world.rank() == 2) {
      moved.wait();
      throw NumericalError("not finite");
    }
    const int peer = 1 - world.rank();
    std::vector<int64_t> bytes(3, 0), places(3, 0);
    bytes[static_cast<size_t>(peer)] = 1;
    std::vector<std::byte> out(1), in(1);
    world.all_to_all_v({out, bytes, places}, {in, bytes, places});
    FAIL() << "a byte came in no time";
  };
  EXPECT_THROW(run_ranks(3, options, fail), NumericalError);
}

}  // namespace
}  // namespace canzona::comm::link_model_test

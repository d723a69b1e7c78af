// Tests of the order in which ranks launch: NCCL hangs if it differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/comm/nccl/test_ranks_nccl.h"
#include "canzona/comm/test_pieces.h"

namespace canzona::comm::nccl_order_test {
namespace {

constexpr int64_t kElements = 12;

// A rank's groups of a dp × tp grid, each with its own lane, and a shared pool
// of buffers: a buffer is reused only after its last use.
class Grid {
 public:
  Grid(NcclTestRank& rank, int tp, int num_slots)
      : lanes_{rank.lane, std::make_shared<TestLane>(TestLane::When::kLater,
                                                     rank.world.rank())},
        slots_(static_cast<size_t>(num_slots)) {
    const int own = rank.world.rank();
    const auto split = [&](int color, const char* name, size_t lane) {
      groups_.push_back(
          rank.world.split_ordered(color, own, name, lanes_[lane]));
    };
    split(0, "all", 0);
    split(own / tp, "tp", 1);
    split(own % tp, "dp", 0);
    split(own % tp, "dp publish", 1);
    for (Slot& slot : slots_) {
      slot.data.resize(kElements * 8);
      slot.free = rank.lane->make_mark();
    }
  }

  // Issues operation `number` of a schedule that is the same on all ranks.
  void issue(uint64_t seed, uint64_t number) {
    const uint64_t bits = bits_at(seed, number);
    Communicator& group = *groups_[bits % groups_.size()];
    Slot& slot = slots_[number % slots_.size()];
    auto& lane = static_cast<TestLane&>(*group.lane());
    lane.wait_for(*slot.free);
    lane.issue([&slot, value = group.rank() + 1] {
      std::ranges::fill(slot.data, static_cast<float>(value));
    });
    const uint64_t what = bits / 8 % 5;
    call(group, what, slot);
    lane.issue([this, &slot, what, n = group.size(), own = group.rank()] {
      if (slot.data.front() != first_after(what, n, own)) ++num_wrong_;
    });
    lane.record(*slot.free);
  }

  int num_wrong() {
    for (const auto& lane : lanes_) lane->wait();
    return num_wrong_;
  }

 private:
  struct Slot {
    std::vector<float> data;
    std::unique_ptr<Mark> free;
  };

  static void call(Communicator& group, uint64_t what, Slot& slot) {
    const auto n = static_cast<size_t>(group.size());
    const std::span<std::byte> all =
        bytes_of(slot.data).first(n * kElements * 4);
    const std::vector<int64_t> bytes(n, kElements * 4), counts(n, kElements);
    const auto own = all.subspan(
        static_cast<size_t>(group.rank()) * kElements * 4, kElements * 4);
    if (what == 0) group.all_gather_v(own, bytes, all);
    if (what == 1)
      group.reduce_scatter_v(Reduction::kFp32Sum, all, counts, own);
    if (what == 2) group.all_reduce(Reduction::kFp32SumOfBf16, all);
    if (what == 3) group.broadcast(group.size() - 1, all);
    if (what == 4) group.barrier();
  }
  // The first element of rank `own` of n, where each rank had its number + 1
  // everywhere.
  static float first_after(uint64_t what, int n, int own) {
    const int sum = n * (n + 1) / 2;
    const std::array<int, 5> values = {1, own == 0 ? sum : own + 1, sum, n,
                                       own + 1};
    return static_cast<float>(values[what]);
  }

  std::array<std::shared_ptr<TestLane>, 2> lanes_;
  std::vector<std::unique_ptr<Communicator>> groups_;
  std::vector<Slot> slots_;
  std::atomic<int> num_wrong_ = 0;
};

// Expects the same launches on both ranks in groups that they share.
void expect_alike(const StubRecord& record, int a, int b) {
  const auto groups_of = [&](int rank) {
    std::set<int64_t> groups;
    for (const StubLaunch& launch : record.of(rank))
      groups.insert(launch.group);
    return groups;
  };
  const std::set<int64_t> of_a = groups_of(a), of_b = groups_of(b);
  const auto shared = [&](int rank) {
    std::vector<StubLaunch> launches;
    for (const StubLaunch& launch : record.of(rank))
      if (of_a.contains(launch.group) && of_b.contains(launch.group))
        launches.push_back(launch);
    return launches;
  };
  EXPECT_EQ(shared(a), shared(b)) << "ranks " << a << " and " << b;
}

void check_schedule(int num_ranks, int tp, int num_slots, uint64_t seed) {
  constexpr uint64_t kOperations = 60;
  StubRecord record(num_ranks);
  NcclTestOptions options;
  options.communicator.segment_bytes = 32;
  options.delay = [](int rank) {
    thread_local uint64_t turn = 0;
    const uint64_t bits = bits_at(static_cast<uint64_t>(rank) + 7, ++turn);
    if (bits % 16 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(bits % 89));
  };
  run_nccl_ranks(num_ranks, options, [&](NcclTestRank& rank) {
    Grid grid(rank, tp, num_slots);
    for (uint64_t i = 0; i < kOperations; ++i) grid.issue(seed, i);
    EXPECT_EQ(grid.num_wrong(), 0);
  });
  for (int a = 0; a < num_ranks; ++a)
    for (int b = a + 1; b < num_ranks; ++b) expect_alike(record, a, b);
}

TEST(NcclOrder, IsTheSameOnAllRanksForRandomSchedulesAndSmallestPools) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    check_schedule(4, 2, 1, seed);
    check_schedule(8, 4, seed % 2 == 0 ? 1 : 2, seed + 100);
  }
}

}  // namespace
}  // namespace canzona::comm::nccl_order_test

// Groups whose memory differs from the world's. Ranks are threads that count
// together.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "canzona/comm/test_host_ops.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm::other_memory_test {
namespace {

// The host's operations, counted.
class CountedOps final : public HostOps {
 public:
  int num_copies() const { return copies_; }
  int num_sums() const { return sums_; }
  int num_allocated() const { return allocated_; }

  std::byte* allocate(int64_t bytes) const override {
    ++allocated_;
    return HostOps::allocate(bytes);
  }
  void release(std::byte* memory) const override {
    --allocated_;
    HostOps::release(memory);
  }
  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    ++copies_;
    HostOps::copy(to, from, bytes);
  }
  void add(Reduction reduction, std::byte* sum, const std::byte* a,
           const std::byte* b, int64_t count) const override {
    ++sums_;
    HostOps::add(reduction, sum, a, b, count);
  }

 private:
  mutable std::atomic<int> copies_ = 0, sums_ = 0, allocated_ = 0;
};

// 64 MiB for all sums of a group, whatever the number of ranks and the kind of
// memory; segments of any length, but no shorter than an element.
TEST(SumStaging, HasAFixedSizeHoweverManyRanksThereAre) {
  constexpr int64_t kMost = int64_t{64} << 20;
  constexpr int64_t kDevice = kMostSumStaging;  // the longest allowed
  EXPECT_EQ(kMostSumStaging, kMost);
  for (int ranks = 1; ranks <= 4096; ++ranks)
    for (const int64_t segment : {int64_t{1}, kUsualSumSegment, kDevice}) {
      ASSERT_LE(sum_staging_bytes(ranks, segment), kMost) << ranks;
      ASSERT_GE(sum_slot_bytes(ranks, segment), 16) << ranks;
      ASSERT_EQ(sum_slot_bytes(ranks, segment) % 64, 0) << ranks;
    }
  // Two halves, each with incoming and outgoing slots, and a few buffers for
  // the tree.
  EXPECT_EQ(sum_staging_bytes(4), (4 * 4 + 3 + 1) * (256 << 10));
  EXPECT_EQ(sum_slot_bytes(61, kUsualSumSegment), 256 << 10);
  EXPECT_LT(sum_slot_bytes(256, kUsualSumSegment), 256 << 10);
  EXPECT_GT(sum_staging_bytes(256), kMost - kMost / 8);
  EXPECT_GT(sum_staging_bytes(8, kDevice), kMost - kMost / 8);
}

class NotedOps final : public HostOps {
 public:
  explicit NotedOps(bool host) : host_(host) {}
  bool is_host() const override { return host_; }
  std::byte* allocate(int64_t bytes) const override {
    noted_ += bytes;
    return HostOps::allocate(bytes);
  }
  int64_t noted() const { return noted_; }

 private:
  bool host_;
  mutable std::atomic<int64_t> noted_ = 0;
};

TEST(SumStaging, IsWhatAGroupReserves) {
  for (const bool host : {true, false})
    for (const int ranks : {1, 2, 7}) {
      const NotedOps ops(host);
      run_ranks(ranks, [&](Communicator& world) {
        const auto group = world.split(0, world.rank(), "group", {}, &ops);
        std::vector<float> data(1000, 1.0F);
        group->all_reduce(Reduction::kFp32Sum, bytes_of(data));
        EXPECT_EQ(data[999], static_cast<float>(ranks));
        world.barrier();
        EXPECT_EQ(group->staging_bytes(),
                  sum_staging_bytes(ranks,
                                    host ? kUsualSumSegment : kMostSumStaging));
        EXPECT_EQ(ops.noted(), ranks * group->staging_bytes());
        world.barrier();
      });
    }
}

TEST(Communicator, AGroupMayHaveMemoryOfAnotherKind) {
  CountedOps ops;
  run_ranks(4, [&](Communicator& world) {
    const auto same = world.split(0, 0, "same");
    const auto other = world.split(world.rank() % 2, 0, "other", {}, &ops);
    const auto below = other->split(0, 0, "below");
    EXPECT_EQ(other->size(), 2);
    std::vector<int64_t> data(1, world.rank());
    same->all_reduce(Reduction::kInt64Sum, bytes_of(data));
    world.barrier();
    EXPECT_EQ(ops.num_sums(), 0);
    EXPECT_EQ(ops.num_allocated(), 8);
    world.barrier();
    const int before = ops.num_copies();
    world.barrier();
    std::vector<int64_t> both(2);
    const std::vector<int64_t> bytes = {8, 8};
    below->all_gather_v(bytes_of(data), bytes, bytes_of(both));
    EXPECT_EQ(both, std::vector<int64_t>(2, 6));
    world.barrier();
    // Each of four ranks copies its own piece and the other's.
    EXPECT_EQ(ops.num_copies() - before, 8);
    world.barrier();
    other->all_reduce(Reduction::kInt64Sum, bytes_of(data));
    EXPECT_EQ(data.front(), 12);
    world.barrier();
    EXPECT_GT(ops.num_sums(), 0);
  });
  EXPECT_EQ(ops.num_allocated(), 0);
}

}  // namespace
}  // namespace canzona::comm::other_memory_test

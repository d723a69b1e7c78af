#include "canzona/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::communicator_test {
namespace {

constexpr auto kRanks = {1, 2, 4, 7, 8};

// Random counts: 0, 1 and up to 300.
std::vector<int64_t> test_counts(int num_ranks, uint64_t seed) {
  std::vector<int64_t> counts;
  for (int i = 0; i < num_ranks; ++i) {
    const uint64_t bits = bits_at(seed, static_cast<uint64_t>(i));
    counts.push_back(
        static_cast<int64_t>(bits % 4 < 2 ? bits % 4 : bits / 4 % 300));
  }
  return counts;
}

int64_t total_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Returns byte `i` of the message from rank `from` to rank `to`.
std::byte byte_of(int from, int to, int64_t i) {
  return static_cast<std::byte>(from * 31 + to * 7 + i);
}

std::vector<std::byte> bytes_for(int from, int to, int64_t count) {
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(byte_of(from, to, i));
  return bytes;
}

TEST(Communicator, KnowsItsPlace) {
  run_test_ranks(3, [](Communicator& world) {
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.name(), "world");
    int64_t sum = world.rank();
    world.all_reduce(Reduction::kInt64Sum,
                     std::as_writable_bytes(std::span(&sum, 1)));
    EXPECT_EQ(sum, 0 + 1 + 2);
  });
}

TEST(Communicator, GathersPiecesOfAnySize) {
  for (int num_ranks : kRanks)
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<int64_t> counts = test_counts(num_ranks, seed);
      run_test_ranks(num_ranks, [&](Communicator& world) {
        const int rank = world.rank();
        const int64_t own = counts[static_cast<size_t>(rank)];
        std::vector<std::byte> whole(static_cast<size_t>(total_of(counts)));
        world.all_gather_v(bytes_for(rank, 0, own), counts, whole);
        std::vector<std::byte> expected;
        for (int from = 0; from < num_ranks; ++from)
          for (std::byte b :
               bytes_for(from, 0, counts[static_cast<size_t>(from)]))
            expected.push_back(b);
        EXPECT_EQ(whole, expected);
        EXPECT_EQ(world.traffic().of(Operation::kAllGather).sent,
                  (num_ranks - 1) * own);
      });
    }
}

TEST(Communicator, GathersInPlace) {
  run_test_ranks(4, [](Communicator& world) {
    std::vector<int64_t> whole(4, -1);
    const auto rank = static_cast<size_t>(world.rank());
    whole[rank] = world.rank();
    world.all_gather_v(std::as_bytes(std::span(&whole[rank], 1)),
                       std::vector<int64_t>(4, 8), bytes_of(whole));
    EXPECT_THAT(whole, testing::ElementsAre(0, 1, 2, 3));
  });
}

// Pieces have gaps and are ordered from the last rank to the first.
TEST(Communicator, ExchangesAllToAll) {
  const auto count_of = [](int from, int to) {
    return test_counts(8, static_cast<uint64_t>(from))[static_cast<size_t>(to)];
  };
  for (int num_ranks : kRanks)
    run_test_ranks(num_ranks, [&](Communicator& world) {
      const int rank = world.rank();
      std::vector<int64_t> to, from, places;
      for (int peer = 0; peer < num_ranks; ++peer) {
        to.push_back(count_of(rank, peer));
        from.push_back(count_of(peer, rank));
        places.push_back(301 * (num_ranks - 1 - peer));
      }
      std::vector<std::byte> out(static_cast<size_t>(301 * num_ranks));
      std::vector<std::byte> in(out.size());
      for (int peer = 0; peer < num_ranks; ++peer)
        for (int64_t i = 0; i < count_of(rank, peer); ++i)
          out[static_cast<size_t>(places[static_cast<size_t>(peer)] + i)] =
              byte_of(rank, peer, i);
      world.all_to_all_v({out, to, places}, {in, from, places});
      for (int peer = 0; peer < num_ranks; ++peer)
        for (int64_t i = 0; i < count_of(peer, rank); ++i)
          ASSERT_EQ(
              in[static_cast<size_t>(places[static_cast<size_t>(peer)] + i)],
              byte_of(peer, rank, i));
      EXPECT_EQ(world.traffic().of(Operation::kAllToAll).sent,
                total_of(to) - count_of(rank, rank));
    });
}

TEST(Communicator, BroadcastsFromAnyRoot) {
  for (int num_ranks : kRanks)
    run_test_ranks(num_ranks, [&](Communicator& world) {
      for (int root = 0; root < num_ranks; ++root) {
        std::vector<float> data = test_piece(world.rank(), 77);
        world.broadcast(root, bytes_of(data));
        EXPECT_EQ(data, test_piece(root, 77));
      }
      EXPECT_EQ(world.traffic().of(Operation::kBroadcast).sent,
                (num_ranks - 1) * 77 * 4);
    });
}

TEST(Communicator, MovesNothingWithoutAMessage) {
  run_test_ranks(4, [](Communicator& world) {
    const std::vector<int64_t> none(4, 0);
    world.all_gather_v({}, none, {});
    world.all_to_all_v({{}, none, none}, {{}, none, none});
    world.broadcast(2, {});
    world.all_reduce(Reduction::kFp32Sum, {});
    world.reduce_scatter_v(Reduction::kFp32Sum, {}, none, {});
    EXPECT_EQ(world.traffic().of(Operation::kAllToAll).calls, 1);
    EXPECT_EQ(world.traffic().of(Operation::kAllToAll).sent, 0);
  });
}

TEST(Communicator, SplitsIntoAGrid) {
  run_test_ranks(8, [](Communicator& world) {
    const int t = world.rank() % 4;
    const int d = world.rank() / 4;
    const auto tp = world.split(d, t, "tp");
    const auto dp = world.split(t, d, "dp");
    ASSERT_EQ(tp->size(), 4);
    ASSERT_EQ(dp->size(), 2);
    EXPECT_EQ(tp->rank(), t);
    EXPECT_EQ(dp->rank(), d);
    EXPECT_EQ(tp->name(), "tp");
    for (int round = 0; round < 10; ++round) {
      std::vector<int64_t> sums = {world.rank(), world.rank()};
      tp->all_reduce(Reduction::kInt64Sum, bytes_of(sums).first(8));
      dp->all_reduce(Reduction::kInt64Sum, bytes_of(sums).last(8));
      EXPECT_EQ(sums[0], 4 * (4 * d) + 6);
      EXPECT_EQ(sums[1], 2 * t + 4);
    }
  });
}

TEST(Communicator, OrdersASplitByKeyAndLeavesOutNegativeColors) {
  run_test_ranks(5, [](Communicator& world) {
    const bool outside = world.rank() == 3;
    const auto group = world.split(outside ? -1 : 0, -world.rank(), "reversed");
    ASSERT_EQ(group == nullptr, outside);
    if (outside) return;
    EXPECT_EQ(group->size(), 4);
    EXPECT_EQ(group->rank(), world.rank() == 4 ? 0 : 3 - world.rank());
  });
}

TEST(Communicator, RefusesSizesThatDoNotFit) {
  run_test_ranks(1, [](Communicator& world) {
    std::vector<std::byte> eight(8);
    const std::vector<int64_t> two = {4, 4}, one = {8}, less = {-1};
    EXPECT_THROW(world.all_gather_v(eight, two, eight), UsageError);
    EXPECT_THROW(world.all_gather_v(eight, less, eight), UsageError);
    EXPECT_THROW(world.reduce_scatter_v(Reduction::kFp32Sum, eight, one, eight),
                 UsageError);
    EXPECT_THROW(world.broadcast(1, eight), UsageError);
    EXPECT_THROW(
        world.all_reduce(Reduction::kInt64Sum, std::span(eight).first(7)),
        UsageError);
    EXPECT_THROW(world.all_to_all_v({eight, one, one}, {eight, one, one}),
                 UsageError);
    world.barrier();
  });
}

TEST(Communicator, RefusesBuffersThatOverlap) {
  run_test_ranks(2, [](Communicator& world) {
    std::vector<float> data(8);
    const std::span<std::byte> bytes = bytes_of(data);
    const auto other = bytes.subspan(world.rank() == 0 ? 4 : 0, 16);
    const std::vector<int64_t> fours = {4, 4}, halves = {16, 16};
    EXPECT_THROW(world.all_gather_v(other, halves, bytes), UsageError);
    EXPECT_THROW(
        world.reduce_scatter_v(Reduction::kFp32Sum, bytes, fours, other),
        UsageError);
    const std::vector<int64_t> none = {0, 0};
    EXPECT_THROW(world.all_to_all_v({bytes, none, none}, {other, none, none}),
                 UsageError);
    world.barrier();
  });
}

TEST(Communicator, CountsItsTraffic) {
  run_test_ranks(2, [](Communicator& world) {
    std::vector<float> data(5);
    world.broadcast(0, bytes_of(data));
    world.barrier();
    const auto& sent = world.traffic().of(Operation::kBroadcast);
    EXPECT_EQ(sent.calls, 1);
    EXPECT_EQ(sent.sent, world.rank() == 0 ? 20 : 0);
    EXPECT_EQ(sent.sent_slow, 0);
    EXPECT_EQ(world.traffic().of(Operation::kBarrier).calls, 1);
    EXPECT_EQ(world.traffic().of(Operation::kBarrier).sent, 0);
  });
}

}  // namespace
}  // namespace canzona::comm::communicator_test

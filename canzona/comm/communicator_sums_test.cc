#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/units.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::communicator_sums_test {
namespace {

constexpr auto kRanks = {1, 2, 4, 7, 8};
constexpr auto kSegments = {1, 3, 64, 4096};

CommunicatorOptions segments_of(int64_t elements) {
  return {.segment_bytes = elements * 4};
}

std::vector<int64_t> uneven_counts(int num_ranks, uint64_t seed) {
  std::vector<int64_t> counts;
  for (int i = 0; i < num_ranks; ++i)
    counts.push_back(static_cast<int64_t>(
        bits_at(seed, static_cast<uint64_t>(i)) % 3 == 0
            ? bits_at(seed, static_cast<uint64_t>(i)) / 3 % 2
            : bits_at(seed, static_cast<uint64_t>(i)) / 3 % 200));
  return counts;
}

void expect_oracle(const std::vector<float>& sum, int64_t first, int num_ranks,
                   bool bf16) {
  for (size_t i = 0; i < sum.size(); ++i) {
    const float expected =
        oracle_at(num_ranks, first + static_cast<int64_t>(i), bf16);
    ASSERT_TRUE(same_bits(sum[i], expected))
        << num_ranks << " ranks, element " << i << ": " << sum[i] << " vs "
        << expected;
  }
}

// Ranks arrive at different times, to vary the order of messages.
void delay(int rank, uint64_t seed) {
  const uint64_t bits = bits_at(seed, static_cast<uint64_t>(rank));
  std::this_thread::sleep_for(std::chrono::microseconds(bits % 400));
}

void check_reduce_scatter(int num_ranks, int64_t segment, uint64_t seed,
                          bool bf16) {
  const std::vector<int64_t> counts = uneven_counts(num_ranks, seed);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), 0L);
  run_test_ranks(num_ranks, segments_of(segment), [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const int64_t first =
        std::accumulate(counts.begin(), counts.begin() + world.rank(), 0L);
    const std::vector<float> input = test_piece(world.rank(), total);
    std::vector<float> sum(static_cast<size_t>(counts[rank]), -1);
    delay(world.rank(), seed);
    world.reduce_scatter_v(
        bf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum, bytes_of(input),
        counts, bytes_of(sum));
    expect_oracle(sum, first, num_ranks, bf16);
    EXPECT_EQ(input, test_piece(world.rank(), total));
    EXPECT_EQ(world.traffic().of(Operation::kReduceScatter).sent,
              (total - counts[rank]) * (bf16 ? 2 : 4));
  });
}

TEST(ReduceScatter, HasTheBitsOfTheTreeForAnySegment) {
  for (int num_ranks : kRanks)
    for (int segment : kSegments)
      for (uint64_t seed = 0; seed < 3; ++seed)
        check_reduce_scatter(num_ranks, segment, seed, false);
}

TEST(ReduceScatter, RoundsEveryPieceToBf16) {
  for (int num_ranks : kRanks)
    for (int segment : kSegments)
      check_reduce_scatter(num_ranks, segment, 5, true);
}

TEST(ReduceScatter, MayPutTheSumWhereTheOwnPieceLies) {
  for (int num_ranks : kRanks)
    run_test_ranks(num_ranks, segments_of(7), [&](Communicator& world) {
      const std::vector<int64_t> counts(static_cast<size_t>(num_ranks), 20);
      std::vector<float> data = test_piece(world.rank(), 20L * num_ranks);
      const auto own =
          std::span(data).subspan(static_cast<size_t>(world.rank()) * 20, 20);
      world.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(data), counts,
                             std::as_writable_bytes(own));
      expect_oracle({own.begin(), own.end()}, 20L * world.rank(), num_ranks,
                    false);
    });
}

TEST(AllReduce, HasTheSameBitsOnAllRanks) {
  for (int num_ranks : kRanks)
    for (int segment : kSegments)
      for (int64_t count : {0, 1, 5, 8, 131})
        for (bool bf16 : {false, true})
          run_test_ranks(
              num_ranks, segments_of(segment), [&](Communicator& world) {
                std::vector<float> data = test_piece(world.rank(), count);
                world.all_reduce(
                    bf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum,
                    bytes_of(data));
                expect_oracle(data, 0, num_ranks, bf16);
              });
}

TEST(AllReduce, SendsWhatARingWould) {
  run_test_ranks(4, [](Communicator& world) {
    std::vector<float> data(1000);
    world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
    EXPECT_EQ(world.traffic().of(Operation::kAllReduce).sent,
              2 * 1000 * 4 * 3 / 4);
    EXPECT_EQ(world.traffic().of(Operation::kAllGather).calls, 0);
  });
}

TEST(AllReduce, AddsIntegersAndFindsTheLargest) {
  for (int num_ranks : kRanks)
    run_test_ranks(num_ranks, segments_of(1), [&](Communicator& world) {
      const int64_t rank = world.rank();
      std::vector<int64_t> sum = {rank, -rank, 1};
      world.all_reduce(Reduction::kInt64Sum, bytes_of(sum));
      const int64_t all = num_ranks * (num_ranks - 1) / 2;
      EXPECT_EQ(sum, (std::vector<int64_t>{all, -all, num_ranks}));
      std::vector<int64_t> most = {rank, -rank - 3};
      world.all_reduce(Reduction::kInt64Max, bytes_of(most));
      EXPECT_EQ(most, (std::vector<int64_t>{num_ranks - 1, -3}));
    });
}

}  // namespace
}  // namespace canzona::comm::communicator_sums_test

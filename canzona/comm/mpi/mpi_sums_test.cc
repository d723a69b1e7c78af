// Runs on the ranks of an MPI program.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::mpi_sums_test {
namespace {

constexpr auto kRanks = {1, 2, 4, 7, 8};
CommunicatorOptions fast() { return {.fast_reduce = true}; }

// Another order of additions must be close to the tree's sum, relative to the
// size of the terms.
void expect_near(const std::vector<float>& sum, int64_t first, int num_ranks) {
  for (size_t i = 0; i < sum.size(); ++i) {
    const int64_t place = first + static_cast<int64_t>(i);
    double size = 0;
    for (int rank = 0; rank < num_ranks; ++rank)
      size += std::abs(test_value(rank, place));
    EXPECT_NEAR(sum[i], oracle_at(num_ranks, place), 1e-6 * size);
  }
}

TEST(FastSums, AllReduceIsNearTheTree) {
  for (int num_ranks : kRanks)
    for (int64_t count : {0, 1, 1000})
      run_test_ranks(num_ranks, fast(), [&](Communicator& world) {
        std::vector<float> data = test_piece(world.rank(), count);
        world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
        expect_near(data, 0, num_ranks);
        const int64_t own = count * (world.rank() + 1) / num_ranks -
                            count * world.rank() / num_ranks;
        EXPECT_EQ(world.traffic().of(Operation::kAllReduce).sent,
                  4 * (count - own + (num_ranks - 1) * own));
      });
}

TEST(FastSums, ReduceScatterIsNearTheTreeAlsoInPlace) {
  for (int num_ranks : kRanks)
    for (bool in_place : {false, true})
      run_test_ranks(num_ranks, fast(), [&](Communicator& world) {
        std::vector<int64_t> counts(static_cast<size_t>(num_ranks), 50);
        counts.front() = 0;
        const int64_t first = world.rank() == 0 ? 0 : 50 * (world.rank() - 1);
        const int64_t own = world.rank() == 0 ? 0 : 50;
        std::vector<float> data =
            test_piece(world.rank(), 50L * (num_ranks - 1));
        std::vector<float> apart(static_cast<size_t>(own));
        const auto place = std::span(data).subspan(static_cast<size_t>(first),
                                                   static_cast<size_t>(own));
        world.reduce_scatter_v(
            Reduction::kFp32Sum, bytes_of(data), counts,
            in_place ? std::as_writable_bytes(place) : bytes_of(apart));
        const std::vector<float> there(place.begin(), place.end());
        expect_near(in_place ? there : apart, first, num_ranks);
      });
}

// The bytes that leave a node are the same with the library's sums and without.
TEST(FastSums, CountWhatAnExchangeWouldSend) {
  for (int num_ranks : kRanks) {
    std::vector<TrafficLog> logs;
    for (bool is_fast : {false, true})
      run_test_ranks(
          num_ranks, {.fast_reduce = is_fast, .ranks_per_node = 3},
          [&](Communicator& world) {
            std::vector<int64_t> counts(static_cast<size_t>(num_ranks), 50);
            counts.front() = 7;
            std::vector<float> data(static_cast<size_t>(50 * num_ranks - 43));
            std::vector<float> own(world.rank() == 0 ? 7 : 50);
            world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
            world.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(data), counts,
                                   bytes_of(own));
            logs.push_back(world.traffic());
          });
    if (logs.empty()) continue;
    for (Operation op : {Operation::kAllReduce, Operation::kReduceScatter}) {
      EXPECT_EQ(logs[1].of(op).sent, logs[0].of(op).sent);
      EXPECT_EQ(logs[1].of(op).sent_slow, logs[0].of(op).sent_slow);
      if (num_ranks > 3) {
        EXPECT_GT(logs[1].of(op).sent_slow, 0);
      }
    }
  }
}

TEST(FastSums, IntegersAreExactAndBf16IsRefused) {
  run_test_ranks(2, fast(), [](Communicator& world) {
    std::vector<int64_t> sum = {(int64_t{1} << 60) + world.rank()};
    world.all_reduce(Reduction::kInt64Sum, bytes_of(sum));
    EXPECT_EQ(sum.front(), (int64_t{1} << 61) + 1);
    std::vector<float> data(4);
    EXPECT_THROW(world.all_reduce(Reduction::kFp32SumOfBf16, bytes_of(data)),
                 UsageError);
  });
}

TEST(FastSums, GroupsOfAGridAddForThemselves) {
  run_test_ranks(4, fast(), [](Communicator& world) {
    const auto tp = world.split(world.rank() / 2, 0, "tp");
    const auto dp = world.split(world.rank() % 2, 0, "dp");
    std::vector<float> over_tp = {static_cast<float>(world.rank())};
    std::vector<float> over_dp = over_tp;
    tp->all_reduce(Reduction::kFp32Sum, bytes_of(over_tp));
    dp->all_reduce(Reduction::kFp32Sum, bytes_of(over_dp));
    EXPECT_EQ(over_tp.front(), world.rank() / 2 == 0 ? 1 : 5);
    EXPECT_EQ(over_dp.front(), world.rank() % 2 == 0 ? 2 : 4);
  });
}

}  // namespace
}  // namespace canzona::mpi_sums_test

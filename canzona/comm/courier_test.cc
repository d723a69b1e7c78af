#include "canzona/comm/courier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::courier_test {
namespace {

TEST(Courier, IssuesInOrderAndTellsWhenDone) {
  run_test_ranks(4, [](Communicator& world) {
    std::vector<int64_t> data = {1};
    Courier courier(world, 2);
    // Each adds to what the previous one left: 4, 16, …
    Work last;
    EXPECT_TRUE(last.done());
    for (int round = 0; round < 20; ++round)
      last = courier.all_reduce(Reduction::kInt64Sum, bytes_of(data));
    last.wait();
    EXPECT_TRUE(last.done());
    EXPECT_EQ(data.front(), int64_t{1} << 40);
  });
}

TEST(Courier, CarriesEveryOperation) {
  run_test_ranks(2, [](Communicator& world) {
    const int64_t rank = world.rank();
    const std::vector<int64_t> eight = {8, 8}, places = {0, 8}, one = {1, 1};
    const std::vector<int64_t> mine = {rank, 10 + rank};
    std::vector<int64_t> gathered(2), exchanged(2), sum(1), sent = {rank};
    Courier courier(world, 8);
    courier.all_gather_v(bytes_of(mine).first(8), eight, bytes_of(gathered));
    courier.all_to_all_v({bytes_of(mine), eight, places},
                         {bytes_of(exchanged), eight, places});
    courier.reduce_scatter_v(Reduction::kInt64Sum, bytes_of(mine), one,
                             bytes_of(sum));
    courier.broadcast(1, bytes_of(sent));
    courier.barrier().wait();
    EXPECT_THAT(gathered, testing::ElementsAre(0, 1));
    EXPECT_THAT(exchanged, testing::ElementsAre(10 * rank, 10 * rank + 1));
    EXPECT_EQ(sum.front(), 20 * rank + 1);
    EXPECT_EQ(sent.front(), 1);
  });
}

// Adds over all ranks, then multiplies, which only works as one unit.
struct AddAndDouble {
  void operator()(Communicator& communicator, const Call& call) const {
    communicator.all_reduce(Reduction::kInt64Sum, bytes_of(data), call);
    data.front() *= 2;
    labels.emplace_back(call.label);
  }
  std::vector<int64_t>& data;
  std::vector<std::string>& labels;
};

TEST(Courier, RunsBodiesInTheirTurn) {
  run_test_ranks(2, [](Communicator& world) {
    std::vector<int64_t> data = {1};
    std::vector<std::string> labels;
    const AddAndDouble task{data, labels};
    Courier courier(world, 2);
    for (int round = 0; round < 5; ++round) {
      courier.run("add and double", task, {.label = std::to_string(round)});
      courier.all_reduce(Reduction::kInt64Sum, bytes_of(data));
    }
    Work last = courier.run("add and double", task);
    last.wait();
    // Each task multiplies by four, each sum by two.
    EXPECT_EQ(data.front(), int64_t{1} << (6 * 2 + 5));
    EXPECT_THAT(labels, testing::ElementsAre("0", "1", "2", "3", "4", ""));
    EXPECT_EQ(world.traffic().of(Operation::kAllReduce).calls, 11);
  });
}

// A 2 × 4 grid whose axes work at the same time, with a courier each.
TEST(Courier, ServesTheGroupsOfAGridSideBySide) {
  run_test_ranks(8, [](Communicator& world) {
    const int t = world.rank() % 4;
    const int d = world.rank() / 4;
    const auto tp = world.split(d, t, "tp");
    const auto dp = world.split(t, d, "dp");
    constexpr int kRounds = 30;
    std::vector<std::vector<float>> over_tp, over_dp;
    for (int round = 0; round < kRounds; ++round) {
      over_tp.push_back(test_piece(t, round));
      over_dp.push_back(test_piece(d, 2 * round));
    }
    {
      Courier tp_courier(*tp, 3);
      Courier dp_courier(*dp, 1);
      for (size_t i = 0; i < kRounds; ++i) {
        tp_courier.all_reduce(Reduction::kFp32Sum, bytes_of(over_tp[i]));
        dp_courier.all_reduce(Reduction::kFp32Sum, bytes_of(over_dp[i]));
      }
    }
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < over_tp[round].size(); ++i)
        EXPECT_TRUE(same_bits(over_tp[round][i],
                              oracle_at(4, static_cast<int64_t>(i))));
      for (size_t i = 0; i < over_dp[round].size(); ++i)
        EXPECT_TRUE(same_bits(over_dp[round][i],
                              oracle_at(2, static_cast<int64_t>(i))));
    }
  });
}

TEST(Courier, EndsWhatWasPostedBeforeItEnds) {
  run_test_ranks(3, [](Communicator& world) {
    std::vector<int64_t> data = {1};
    {
      Courier courier(world, 5);
      for (int i = 0; i < 4; ++i)
        courier.all_reduce(Reduction::kInt64Sum, bytes_of(data));
    }
    EXPECT_EQ(data.front(), 81);
  });
}

}  // namespace
}  // namespace canzona::comm::courier_test

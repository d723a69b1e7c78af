#include "canzona/comm/wire_ops.h"

#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/test_pieces.h"

namespace canzona::comm::tree_sum_test {
namespace {

std::vector<float> summed(const std::vector<std::vector<float>>& ranks) {
  const auto count = static_cast<int64_t>(ranks.front().size());
  std::vector<const std::byte*> pieces;
  for (const auto& rank : ranks) pieces.push_back(bytes_of(rank).data());
  std::vector<float> sum(ranks.front().size());
  std::vector<std::byte> scratch(static_cast<size_t>(tree_scratch_bytes(
      Reduction::kFp32Sum, static_cast<int>(ranks.size()), count)));
  tree_sum(cpu_wire_ops(), Reduction::kFp32Sum, pieces, count,
           bytes_of(sum).data(), scratch.data());
  return sum;
}

TEST(TreeSum, AddsNeighboursFirst) {
  // In order from the left, the ones would be lost in 2^24 one by one.
  const float big = 0x1p24F;
  EXPECT_EQ(summed({{big}, {0}, {1}, {1}}).front(), big + 2);
  EXPECT_EQ(summed({{big}, {1}, {1}, {-big}}).front(), 1);
}

TEST(TreeSum, CarriesAnOddOneUp) {
  // (0 + 1) + 2, and not 0 + (1 + 2).
  EXPECT_EQ(summed({{0x1p24F}, {1}, {1}}).front(), 0x1p24F);
}

TEST(TreeSum, IsTheTreeByLevelsForAnyNumberOfRanks) {
  for (int num_ranks = 1; num_ranks <= 33; ++num_ranks) {
    std::vector<std::vector<float>> ranks;
    for (int rank = 0; rank < num_ranks; ++rank)
      ranks.push_back(test_piece(rank, 65));
    const std::vector<float> sum = summed(ranks);
    for (int64_t i = 0; i < 65; ++i)
      EXPECT_TRUE(
          same_bits(sum[static_cast<size_t>(i)], oracle_at(num_ranks, i)))
          << num_ranks << " ranks, element " << i;
  }
}

TEST(TreeSum, OfNothingIsOurMistake) {
  EXPECT_THROW(
      tree_sum(cpu_wire_ops(), Reduction::kFp32Sum, {}, 1, nullptr, nullptr),
      InternalError);
}

}  // namespace
}  // namespace canzona::comm::tree_sum_test

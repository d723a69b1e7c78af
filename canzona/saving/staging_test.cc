#include "canzona/saving/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "canzona/base/error.h"

namespace canzona::saving::staging_test {
namespace {

using ::testing::Each;
using ::testing::Ge;

TEST(StagingMemory, HoldsWhatWasCopiedWhereItWasCopiedTo) {
  constexpr int64_t kLarge = (int64_t{5} << 20) + 3;  // several pieces and a
                                                      // rest
  for (const int threads : {1, 3, 16}) {
    std::vector<float> large(index(kLarge));
    std::iota(large.begin(), large.end(), 1.0F);
    const std::vector<float> small = {-1, -2, -3};
    const StagingMemory staging(kLarge + 3, threads);
    EXPECT_EQ(staging.elements(), kLarge + 3);
    EXPECT_THAT(staging.part(0, kLarge + 3), Each(0.0F));
    staging.copy({{large, 2},
                  {std::span(small).first(2), 0},
                  {{}, 1},
                  {std::span(small).last(1), kLarge + 2}});
    EXPECT_EQ(staging.part(0, 2)[0], -1);
    EXPECT_EQ(staging.part(0, 2)[1], -2);
    EXPECT_TRUE(std::ranges::equal(staging.part(2, kLarge), large));
    EXPECT_EQ(staging.part(kLarge + 2, 1)[0], -3);
  }
}

TEST(StagingMemory, OfNothingIsNothing) {
  const StagingMemory none;
  none.copy({});
  EXPECT_EQ(none.elements(), 0);
  const StagingMemory empty(0, 4);
  empty.copy({{{}, 0}});
  EXPECT_TRUE(empty.part(0, 0).empty());
}

TEST(CopyThreads, AreOneOrMoreHoweverManyRanksThereAre) {
  EXPECT_THAT(copy_threads(1), Ge(1));
  EXPECT_GE(copy_threads(1), copy_threads(2));
  EXPECT_EQ(copy_threads(1 << 20), 1);
}

}  // namespace
}  // namespace canzona::saving::staging_test

#include "canzona/measure/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona::measure::collectives_test {
namespace {

TEST(Collectives, EveryOperationIsTimedWithWhatItSends) {
  constexpr int kRanks = 4;
  const Collectives found = measure_collectives({.run = on_threads(kRanks, {}),
                                                 .num_ranks = kRanks,
                                                 .bytes = 4800,
                                                 .rounds = 1});
  std::vector<std::string> names;
  for (const CollectiveTime& row : found.rows) {
    names.push_back(row.operation + " " + row.what);
    EXPECT_GT(row.seconds, 0) << names.back();
    EXPECT_GT(row.sent, 0) << names.back();
  }
  EXPECT_THAT(
      names,
      testing::ElementsAre(
          "all_gather_v equal", "all_to_all_v equal", "reduce_scatter_v equal",
          "reduce_scatter_v equal, bf16 on the wire", "all_gather_v unequal",
          "all_to_all_v unequal", "reduce_scatter_v unequal",
          "reduce_scatter_v unequal, bf16 on the wire", "all_reduce fp32",
          "all_reduce int64, largest of 1", "broadcast from rank 0"));
  // A quarter of 4800 bytes to each of three others.
  EXPECT_EQ(found.rows[0].sent, 3 * 1200);
  EXPECT_EQ(found.rows[2].sent, 3 * 1200);
  EXPECT_EQ(found.rows[3].sent, 3 * 600);
  EXPECT_GT(found.copy_seconds, 0);
}

TEST(Collectives, ABufferHasSomethingForEveryPairOfRanks) {
  EXPECT_THROW(measure_collectives(
                   {.run = on_threads(4, {}), .num_ranks = 4, .bytes = 60}),
               UsageError);
}

}  // namespace
}  // namespace canzona::measure::collectives_test

#include "canzona/sim/zero_search.h"

#include <gmock/gmock.h>

#include "canzona/base/text.h"

namespace canzona::search_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// Times, slow bytes and memory by z2; everything else is equal.
ZeroWeight weight(double seconds, int64_t slow, int64_t memory) {
  return {.memory_bytes = memory, .slow_bytes = slow, .seconds = seconds};
}

std::vector<ZeroChoice> choices(const std::vector<ZeroSizes>& sizes) {
  std::vector<ZeroChoice> out;
  for (const ZeroSizes& s : sizes) out.push_back({s, "balanced"});
  return out;
}

std::vector<std::string> order(const ZeroSearch& search) {
  std::vector<std::string> out;
  for (const RankedZero& r : search.ranking)
    out.push_back(to_string(r.choice.sizes));
  return out;
}

// Evaluates choices by a table, in order.
ZeroSearch search_table(const std::vector<ZeroSizes>& sizes,
                        const std::vector<ZeroWeight>& table, int64_t cap) {
  size_t next = 0;
  return rank_choices(choices(sizes), cap,
                      [&](const ZeroChoice&) { return table[next++]; });
}

TEST(ZeroSearch, TakesTheFastestThatFits) {
  const ZeroSearch search =
      search_table({{8, 1, 1}, {8, 2, 2}, {8, 8, 8}},
                   {weight(1.0, 100, 5 * kGiB), weight(1.2, 100, 2 * kGiB),
                    weight(1.5, 250, 1 * kGiB)},
                   4 * kGiB);
  ASSERT_TRUE(search.is_found());
  EXPECT_THAT(order(search), ElementsAre("z1=8,z2=2,z3=2", "z1=8,z2=8,z3=8",
                                         "z1=8,z2=1,z3=1"));
  EXPECT_EQ(search.ranking[0].reason, "the fastest of 2");
  EXPECT_EQ(search.ranking[1].reason,
            "25 % slower than z1=8,z2=2,z3=2: 2.5x its slow bytes");
  EXPECT_EQ(search.ranking[2].reason,
            "needs 1.00 GiB more than the cap of 4.00 GiB");
  EXPECT_EQ(search.ranking[2].verdict, ZeroVerdict::kOverCap);
  EXPECT_EQ(search.summary(),
            "z1=8,z2=2,z3=2 (states over 8, gradients and parameters over 2): "
            "the fastest of 2");
}

TEST(ZeroSearch, EightRanksHaveThirtyTriples) {
  EXPECT_EQ(all_zero_sizes(8).size(), 30u);
  EXPECT_EQ(all_zero_sizes(1).size(), 1u);
  // 1; 2: 4; 3: 4; 6: of 16 pairs of 1, 2, 3, 6 all but (2, 3) and (3, 2).
  EXPECT_EQ(all_zero_sizes(6).size(), 1u + 4 + 4 + 14);
}

TEST(ZeroSearch, ACapOneByteTooSmall) {
  const std::vector<ZeroSizes> sizes{{2, 1, 1}, {2, 2, 2}};
  const std::vector<ZeroWeight> table{weight(1, 0, 1000), weight(2, 0, 600)};
  EXPECT_EQ(order(search_table(sizes, table, 1000))[0], "z1=2,z2=1,z3=1");
  const ZeroSearch tight = search_table(sizes, table, 999);
  EXPECT_EQ(order(tight)[0], "z1=2,z2=2,z3=2");
  EXPECT_EQ(tight.ranking[0].reason, "the only one that fits");
  EXPECT_EQ(tight.ranking[1].reason, "needs 1 B more than the cap of 999 B");
}

TEST(ZeroSearch, NothingFits) {
  const ZeroSearch search = search_table(
      {{2, 1, 1}, {2, 2, 2}}, {weight(1, 0, 1000), weight(2, 0, 600)}, 599);
  EXPECT_FALSE(search.is_found());
  EXPECT_EQ(search.summary(),
            "nothing fits in 599 B; the nearest is z1=2,z2=2,z3=2, which needs "
            "1 B more than the cap of 599 B");
}

TEST(ZeroSearch, WithoutACapEverythingFits) {
  const ZeroSearch search =
      search_table({{2, 1, 1}, {2, 2, 2}},
                   {weight(1, 0, int64_t{1} << 60), weight(2, 0, 6)}, 0);
  EXPECT_EQ(search.ranking[1].verdict, ZeroVerdict::kFits);
  EXPECT_EQ(order(search)[0], "z1=2,z2=1,z3=1");
}

TEST(ZeroSearch, TiesGoToFewerSlowBytesThenMemoryThenSizes) {
  const double almost = 1 + 1e-10;
  const ZeroSearch search = search_table(
      {{8, 8, 8}, {8, 4, 4}, {8, 2, 2}, {8, 2, 1}, {8, 1, 1}},
      {weight(1.0, 7, 5), weight(almost, 7, 5), weight(almost, 7, 4),
       weight(almost, 6, 9), weight(1 + 1e-6, 0, 0)},
      0);
  EXPECT_THAT(order(search),
              ElementsAre("z1=8,z2=2,z3=1", "z1=8,z2=2,z3=2", "z1=8,z2=4,z3=4",
                          "z1=8,z2=8,z3=8", "z1=8,z2=1,z3=1"));
  EXPECT_EQ(search.ranking[1].reason,
            "as fast as z1=8,z2=2,z3=1: 1.2x its slow bytes");
  EXPECT_THAT(search.ranking[4].reason, HasSubstr("slower"));
}

TEST(ZeroSearch, SaysWhichTieBreakDecided) {
  const ZeroSearch search = search_table(
      {{8, 1, 1}, {8, 2, 2}, {8, 4, 4}},
      {weight(1, 7, 4 * kGiB), weight(1, 7, 5 * kGiB), weight(1, 7, 4 * kGiB)},
      0);
  EXPECT_EQ(search.ranking[1].reason,
            "as fast as z1=8,z2=1,z3=1: larger groups without a benefit");
  EXPECT_EQ(search.ranking[2].reason,
            "as fast as z1=8,z2=1,z3=1: 1.00 GiB more memory");
}

TEST(ZeroSearch, NamesWhatCostsTheTime) {
  ZeroWeight best = weight(10, 100, 1), steps = weight(14, 200, 1),
             fast = weight(11, 100, 1), hides = weight(12, 50, 1),
             only = weight(25, 300, 1);
  best.step_seconds = 1;
  steps.step_seconds = 4;
  best.fast_bytes = 10;
  fast.fast_bytes = 30;
  for (ZeroWeight* w : {&fast, &hides, &only}) w->step_seconds = 1;
  const ZeroSearch search =
      search_table({{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {8, 1, 1}, {8, 2, 2}},
                   {best, steps, fast, hides, only}, 0);
  EXPECT_EQ(search.ranking[1].reason,
            "10 % slower than z1=1,z2=1,z3=1: 3.0x its fast bytes");
  EXPECT_EQ(search.ranking[2].reason,
            "20 % slower than z1=1,z2=1,z3=1: less communication is hidden");
  EXPECT_EQ(search.ranking[3].reason,
            "40 % slower than z1=1,z2=1,z3=1: its step takes 4.0x the time");
  EXPECT_EQ(search.ranking[4].reason,
            "2.5x as long as z1=1,z2=1,z3=1: 3.0x its slow bytes");
}

TEST(ZeroSearch, SlowBytesWhereTheBestHasNone) {
  const ZeroSearch search = search_table(
      {{1, 1, 1}, {2, 1, 1}}, {weight(1, 0, 1), weight(1.05, 2048, 1)}, 0);
  EXPECT_EQ(search.ranking[1].reason,
            "5.0 % slower than z1=1,z2=1,z3=1: 2.00 KiB over slow links, the "
            "other none");
}

TEST(ZeroSearch, OneRank) {
  const ZeroSearch search = search_table({{1, 1, 1}}, {weight(1, 0, 8)}, 8);
  ASSERT_TRUE(search.is_found());
  EXPECT_EQ(search.ranking[0].reason, "the only choice");
}

TEST(ZeroSearch, WhatCannotBeComesLast) {
  ZeroWeight refused;
  refused.refusal = "experts have ZeRO-1 alone";
  const ZeroSearch search =
      search_table({{2, 2, 2}, {2, 1, 1}, {1, 1, 1}},
                   {refused, weight(3, 0, 9), weight(2, 0, 11)}, 10);
  EXPECT_THAT(order(search), ElementsAre("z1=2,z2=1,z3=1", "z1=1,z2=1,z3=1",
                                         "z1=2,z2=2,z3=2"));
  EXPECT_EQ(search.ranking[2].reason, "experts have ZeRO-1 alone");
  const ZeroSearch none = search_table({{2, 2, 2}}, {refused}, 0);
  EXPECT_FALSE(none.is_found());
  EXPECT_EQ(none.summary(),
            "no choice is possible; z1=2,z2=2,z3=2: experts have ZeRO-1 alone");
}

TEST(ZeroSearch, NamesStrategiesWhereThereAreSeveral) {
  const ZeroSearch search =
      rank_choices({{{1, 1, 1}, "contiguous"}, {{1, 1, 1}, "balanced"}}, 0,
                   [](const ZeroChoice& choice) {
                     return weight(choice.strategy == "balanced" ? 1 : 2, 0, 1);
                   });
  EXPECT_EQ(search.ranking[0].choice.strategy, "balanced");
  EXPECT_THAT(search.ranking[1].reason,
              HasSubstr("2.0x as long as z1=1,z2=1,z3=1 balanced"));
}

TEST(ZeroSearch, SizesInWords) {
  EXPECT_EQ(in_words({64, 8, 8}),
            "states over 64, gradients and parameters over 8");
  EXPECT_EQ(in_words({64, 64, 64}), "states, gradients and parameters over 64");
  EXPECT_EQ(in_words({64, 64, 1}),
            "states and gradients over 64, parameters whole");
  EXPECT_EQ(in_words({8, 1, 4}),
            "states over 8, gradients whole, parameters over 4");
  EXPECT_EQ(in_words({1, 1, 1}), "states, gradients and parameters whole");
}

// More bytes are not the reason where one home holds up all others.
TEST(ZeroSearch, NamesUnevenBuckets) {
  ZeroWeight best = weight(6, 100, 1), uneven = weight(190, 800, 1);
  uneven.bucket_unevenness = 32;
  const ZeroSearch search =
      search_table({{64, 8, 8}, {64, 1, 1}}, {best, uneven}, 0);
  EXPECT_EQ(search.ranking[1].reason,
            "32x as long as z1=64,z2=8,z3=8: uneven buckets: one rank has 32x "
            "its share");
}

TEST(ZeroSearch, WhatWasNotPlannedSaysSo) {
  ZeroWeight dropped = weight(0, 0, 3 * kGiB);
  dropped.is_dropped = true;
  ZeroSearch search =
      search_table({{2, 1, 1}, {2, 2, 2}}, {dropped, weight(1, 0, 3)}, kGiB);
  EXPECT_FALSE(search.ranking[1].is_planned());
  EXPECT_EQ(search.ranking[1].reason,
            "needs at least 2.00 GiB more than the cap of 1.00 GiB");
  EXPECT_EQ(brief_reason(search.ranking[1], search),
            "at least 2.00 GiB over the cap");
  search.ranking.erase(search.ranking.begin());
  search.cure = "a larger tp";
  EXPECT_THAT(search.summary(), HasSubstr("; try a larger tp"));
}

// Whoever weighs, and in which order, changes nothing.
TEST(ZeroSearch, TheOrderOfWeighingDoesNotMatter) {
  const std::vector<ZeroSizes> sizes = all_zero_sizes(8);
  const auto weigh = [](const ZeroChoice& choice) {
    return weight(choice.sizes.z2 % 3, choice.sizes.z3, choice.sizes.z1);
  };
  const EachOf backwards = [](size_t count, const auto& work) {
    while (count > 0) work(--count);
  };
  const ZeroSearch a = rank_choices(choices(sizes), 4, weigh),
                   b = rank_choices(choices(sizes), 4, weigh, backwards);
  EXPECT_EQ(order(a), order(b));
  for (size_t i = 0; i < a.ranking.size(); ++i)
    EXPECT_EQ(a.ranking[i].reason, b.ranking[i].reason);
}

}  // namespace
}  // namespace canzona::search_test

#include "canzona/sim/zero_ranking.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::sim::zero_ranking_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RankSizes : public ::testing::Test {
 protected:
  RankSizes() {
    options_.parameters = DType::kFp32;
    options_.ranks_per_node = 4;
    options_.links = {1e6, 1e5, 1e-6, false};
    workload_.compute = {.tokens = 64, .flops_per_second = 1e7};
    workload_.num_micro_batches = 2;
  }

  PlanRequest request(const std::string& mesh, int64_t cap) {
    options_.memory_cap_bytes = cap;
    return {model_, parse_mesh(mesh), *rule_, options_};
  }
  ZeroRanking rank(const std::string& mesh, int64_t cap = 0,
                   std::vector<ZeroSizes> experts = {}) {
    return rank_sizes(
        request(mesh, cap), workload_,
        {all_zero_sizes(parse_mesh(mesh).homes()), std::move(experts)});
  }
  ZeroRanking search(const std::string& mesh, int64_t cap = 0,
                     bool experts = false) {
    return search_sizes(request(mesh, cap), workload_,
                        {.dense = true, .experts = experts});
  }
  // The search finds the first row of the ranking of all sizes.
  void expect_first(const std::string& mesh, int64_t cap, bool experts) {
    const int32_t homes = parse_mesh(mesh).expert_homes();
    const ZeroRanking all = rank(
        mesh, cap, experts ? all_zero_sizes(homes) : std::vector<ZeroSizes>{});
    const ZeroRanking found = search(mesh, cap, experts);
    ASSERT_EQ(found.answer.is_found(), all.answer.is_found()) << mesh;
    if (!all.answer.is_found()) return;
    EXPECT_TRUE(found.answer.proven) << mesh;
    EXPECT_EQ(found.answer.best().choice.dense, all.answer.best().choice.dense)
        << mesh << " cap " << cap;
    EXPECT_EQ(found.answer.best().choice.experts,
              all.answer.best().choice.experts)
        << mesh << " cap " << cap;
    EXPECT_EQ(found.answer.best().seconds(), all.answer.best().seconds());
  }
  void expect_first_under_caps(const std::string& mesh, bool experts = false) {
    std::vector<int64_t> caps = {0, 1};
    const ZeroRanking all = rank(mesh);
    for (const RankedMesh& row : all.rows()) caps.push_back(row.memory_bytes());
    std::ranges::sort(caps);
    for (size_t i = 0; i < caps.size(); i += 1 + caps.size() / 5)
      expect_first(mesh, caps[i], experts);
  }

  Model model_ = toy_model(2);
  std::unique_ptr<RuleFacts> rule_ = make_rule_facts("muon", {});
  PlanOptions options_;
  Workload workload_;
};

TEST_F(RankSizes, TheSearchFindsTheFirstOfAll) {
  for (const char* mesh : {"dp=1", "tp=2", "dp=2", "dp=4", "dp=7", "dp=8",
                           "dp=4,tp=2", "dp=4,pp=2", "dp=2,cp=2"})
    expect_first_under_caps(mesh);
}

TEST_F(RankSizes, TheSearchFindsTheFirstOfAllWithExperts) {
  model_ = toy_moe(2);
  workload_.compute.experts_per_token = 2;
  for (const char* mesh : {"dp=2,ep=2", "dp=4", "dp=4,ep=2"}) {
    expect_first_under_caps(mesh);
    expect_first_under_caps(mesh, true);
  }
}

TEST_F(RankSizes, TheSearchFindsTheFirstOfAllWithoutCompute) {
  workload_.compute.tokens = 0;
  expect_first_under_caps("dp=8");
}

TEST_F(RankSizes, RanksAllThirtyOfEightRanks) {
  const ZeroRanking all = rank("dp=8");
  ASSERT_EQ(all.rows().size(), 30u);
  for (const RankedMesh& row : all.rows()) {
    EXPECT_TRUE(row.fits());
    EXPECT_GE(row.weighed.seconds(), all.answer.best().seconds() * (1 - 1e-8));
    EXPECT_FALSE(row.reason.empty());
  }
  EXPECT_EQ(all.rows().front().reason, "the fastest of 30");
  EXPECT_THAT(summary_of(search("dp=8")), HasSubstr("the fastest of 30"));
}

// A cap of exactly what the winner needs keeps it; one byte less drops it. The
// depth of prefetch is fixed, because otherwise it shrinks with the cap.
TEST_F(RankSizes, ACapOneByteTooSmall) {
  options_.zero.prefetch = 1;
  const WeighedMesh best = rank("dp=8").answer.best();
  const ZeroRanking exact = rank("dp=8", best.memory_bytes());
  EXPECT_EQ(exact.answer.best().choice, best.choice);
  const ZeroRanking tight = rank("dp=8", best.memory_bytes() - 1);
  ASSERT_TRUE(tight.answer.is_found());
  EXPECT_FALSE(tight.answer.best().choice == best.choice);
  for (const RankedMesh& row : tight.rows())
    EXPECT_EQ(row.fits(), row.memory_bytes() < best.memory_bytes());
}

// Sizes that cannot fit are not planned. If none fits, the answer names the
// nearest and a cure.
TEST_F(RankSizes, NothingFitsInOneByte) {
  const ZeroRanking none = rank("dp=4", 1);
  EXPECT_FALSE(none.answer.is_found());
  for (const RankedMesh& row : none.rows()) {
    EXPECT_FALSE(row.is_planned());
    EXPECT_EQ(row.weighed.seconds(), 0);
    EXPECT_GE(row.memory_bytes(), none.rows().front().memory_bytes());
    EXPECT_THAT(row.reason, HasSubstr("over the cap"));
  }
  for (const ZeroRanking& one : {none, search("dp=4", 1)}) {
    EXPECT_THAT(summary_of(one), HasSubstr("the nearest is dp=4"));
    EXPECT_THAT(summary_of(one), HasSubstr("; try --memory-cap "));
    EXPECT_THROW(take_best(one, options_), UsageError);
  }
}

// Larger sizes fit where the ones that were asked for do not.
TEST_F(RankSizes, NamesAChangeThatFits) {
  int64_t least = INT64_MAX;
  const ZeroRanking all = rank("dp=8");
  for (const RankedMesh& row : all.rows())
    least = std::min(least, row.memory_bytes());
  const ZeroRanking none =
      rank_sizes(request("dp=8", least), workload_, {{{1, 1, 1}}});
  EXPECT_THAT(summary_of(none), HasSubstr("; try other sizes of ZeRO"));
}

// Memory that the caller has counted belongs to every layout.
TEST_F(RankSizes, CountsWhatLiesBeside) {
  const MemoryTerms terms{.activations = 1000};
  const ZeroRanking all = search_sizes(request("dp=4", 0), workload_,
                                       {.dense = true}, nullptr, &terms);
  EXPECT_EQ(all.answer.best().activations, 1000);
}

TEST_F(RankSizes, OneRankHasOneChoice) {
  const ZeroRanking one = rank("tp=2");
  ASSERT_EQ(one.rows().size(), 1u);
  EXPECT_EQ(one.answer.best().choice.dense, (ZeroSizes{1, 1, 1}));
  EXPECT_EQ(one.rows()[0].reason, "the only choice");
}

// Broadcast weights require z2 = z3: all other sizes keep their refusal.
TEST_F(RankSizes, RefusalsStayInTheRanking) {
  options_.strategy = "layerwise";
  const ZeroRanking all = rank("dp=4");
  ASSERT_TRUE(all.answer.is_found());
  EXPECT_EQ(all.rows().back().verdict, MeshVerdict::kRefused);
  EXPECT_THAT(all.rows().back().reason, HasSubstr("requires z2 = z3"));
  EXPECT_TRUE(search("dp=4").answer.is_found());
}

TEST_F(RankSizes, NamesStrategiesWhereThereAreSeveral) {
  const std::vector<std::string> names{"layerwise", "balanced", "layerwise"};
  const ZeroRanking all =
      rank_sizes(request("dp=4", 0), workload_, {{{4, 1, 1}}, {}, names});
  ASSERT_EQ(all.rows().size(), 2u);
  EXPECT_EQ(all.strategy, "layerwise, balanced");
  const ZeroRanking found = search_sizes(request("dp=4", 0), workload_,
                                         {.dense = true, .strategies = names});
  EXPECT_THAT(summary_of(found), HasSubstr(" " + found.rows()[0].strategy));
  take_best(found, options_);
  EXPECT_EQ(options_.strategy, found.rows()[0].strategy);
}

TEST_F(RankSizes, RefusesExpertsOfADenseModel) {
  EXPECT_THROW(search("dp=4", 0, true), UsageError);
}

// Slow links between nodes of four and little memory: groups stay in a node.
TEST_F(RankSizes, SlowLinksKeepGroupsInsideNodes) {
  options_.links = {1e9, 1e4, 0, false};
  std::vector<int64_t> memory;
  const ZeroRanking all = rank("dp=8");
  for (const RankedMesh& row : all.rows()) memory.push_back(row.memory_bytes());
  std::ranges::sort(memory);
  const ZeroRanking tight = search("dp=8", memory[memory.size() / 3]);
  ASSERT_TRUE(tight.answer.is_found());
  EXPECT_LE(tight.answer.best().choice.dense.places(), 4);
}

// Reasons, from rows by hand.

constexpr int64_t kGiB = int64_t{1} << 30;

// Compute and exposed communication, slow bytes and memory.
RankedMesh row_of(double compute, double exposed, int64_t slow,
                  int64_t memory) {
  RankedMesh row;
  row.weighed.parts.compute = compute;
  row.weighed.parts.gathers = exposed;
  row.weighed.time.seconds = compute + exposed;
  row.weighed.slow_bytes = slow;
  row.weighed.memory.parameters = Bytes(memory);
  return row;
}

std::vector<std::string> reasons(std::vector<RankedMesh> rows,
                                 int64_t cap = 0) {
  MeshAnswer answer{.kinds = std::move(rows)};
  answer.counts.in_space = std::ssize(answer.kinds);
  answer.counts.over_cap = std::ranges::count(
      answer.kinds, MeshVerdict::kOverCap, &RankedMesh::verdict);
  give_reasons(answer, cap);
  std::vector<std::string> out;
  for (const RankedMesh& row : answer.kinds) out.push_back(row.reason);
  return out;
}

TEST(MeshReasons, NameWhatCostsTheTime) {
  RankedMesh step = row_of(10, 0, 100, 1);
  step.weighed.parts.step = 5;
  step.weighed.time.seconds += 5;
  EXPECT_THAT(
      reasons({row_of(10, 0, 100, 1), row_of(10, 2.5, 250, 1),
               row_of(10, 0.001, 100, 1), step, row_of(10, 15, 0, 1)}),
      ElementsAre("the fastest of 5",
                  "25 % slower: exposed communication 25 % (2.5x its slow "
                  "bytes)",
                  "0.010 % slower", "50 % slower: step 50 %",
                  "2.5x as long: exposed communication 150 %"));
}

TEST(MeshReasons, SayWhichTieBreakDecided) {
  EXPECT_THAT(reasons({row_of(1, 0, 7, 4 * kGiB), row_of(1, 0, 14, 4 * kGiB),
                       row_of(1, 0, 7, 5 * kGiB), row_of(1, 0, 7, 4 * kGiB)}),
              ElementsAre("the fastest of 4", "as fast: 2.0x its slow bytes",
                          "as fast: 1.00 GiB more memory",
                          "as fast: larger groups without a benefit"));
}

TEST(MeshReasons, SlowBytesWhereTheBestHasNone) {
  EXPECT_EQ(reasons({row_of(1, 0, 0, 1), row_of(1, 0.05, 2048, 1)})[1],
            "5.0 % slower: exposed communication 5.0 % (2.00 KiB over slow "
            "links, the other none)");
}

// More bytes are not the reason where one home holds up all others.
TEST(MeshReasons, NameUnevenBuckets) {
  RankedMesh uneven = row_of(6, 186, 800, 1);
  uneven.weighed.bucket_unevenness = 32;
  EXPECT_THAT(reasons({row_of(6, 0, 100, 1), uneven})[1],
              HasSubstr("uneven buckets: one rank has 32x its share"));
}

TEST(MeshReasons, CountBytesOverTheCap) {
  RankedMesh over = row_of(1, 0, 0, 3 * kGiB), dropped;
  over.verdict = dropped.verdict = MeshVerdict::kOverCap;
  dropped.least_bytes = 2 * kGiB;
  EXPECT_THAT(reasons({row_of(1, 0, 0, 1), over, dropped}, kGiB),
              ElementsAre("the only one that fits", "2.00 GiB over the cap",
                          "at least 1.00 GiB over the cap"));
}

TEST(InWords, SizesInWords) {
  EXPECT_EQ(in_words({64, 8, 8}),
            "states over 64, gradients and parameters over 8");
  EXPECT_EQ(in_words({64, 64, 64}), "states, gradients and parameters over 64");
  EXPECT_EQ(in_words({64, 64, 1}),
            "states and gradients over 64, parameters whole");
  EXPECT_EQ(in_words({8, 1, 4}),
            "states over 8, gradients whole, parameters over 4");
  EXPECT_EQ(in_words({1, 1, 1}), "states, gradients and parameters whole");
}

TEST(ZeroSizes, EightRanksHaveThirtyTriples) {
  EXPECT_EQ(all_zero_sizes(8).size(), 30u);
  EXPECT_EQ(all_zero_sizes(1).size(), 1u);
  // 1; 2: 4; 3: 4; 6: of 16 pairs of 1, 2, 3, 6 all but (2, 3) and (3, 2).
  EXPECT_EQ(all_zero_sizes(6).size(), 1u + 4 + 4 + 14);
}

}  // namespace
}  // namespace canzona::sim::zero_ranking_test

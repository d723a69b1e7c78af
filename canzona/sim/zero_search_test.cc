#include "canzona/sim/zero_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::zero_search_test {
namespace {

using ::testing::HasSubstr;

class SearchSizes : public ::testing::Test {
 protected:
  SearchSizes() {
    options_.parameters = DType::kFp32;
    options_.ranks_per_node = 4;
    options_.links = {1e6, 1e5, 1e-6, false};
    workload_.compute = {.tokens = 64, .flops_per_second = 1e7};
    workload_.num_micro_batches = 2;
  }

  ZeroSearch search(const std::string& mesh, int64_t cap = 0) {
    options_.memory_cap_bytes = cap;
    return search_sizes({model_, parse_mesh(mesh), *rule_, options_}, workload_,
                        {.dense = true})
        .search;
  }

  Model model_ = toy_model(2);
  std::unique_ptr<RuleFacts> rule_ = make_rule_facts("muon", {});
  PlanOptions options_;
  Workload workload_;
};

TEST_F(SearchSizes, WeighsAllThirtyOfEightRanks) {
  const ZeroSearch all = search("dp=8");
  ASSERT_EQ(all.ranking.size(), 30u);
  ASSERT_TRUE(all.is_found());
  std::set<std::string> names;
  for (const RankedZero& ranked : all.ranking) {
    EXPECT_EQ(ranked.verdict, ZeroVerdict::kFits);
    EXPECT_GE(ranked.weight.seconds,
              all.ranking.front().weight.seconds * (1 - 1e-8));
    EXPECT_FALSE(ranked.reason.empty());
    names.insert(to_string(ranked.choice.sizes));
  }
  EXPECT_EQ(names.size(), 30u);
}

TEST_F(SearchSizes, RepeatsItself) {
  const ZeroSearch a = search("dp=4"), b = search("dp=4");
  ASSERT_EQ(a.ranking.size(), b.ranking.size());
  for (size_t i = 0; i < a.ranking.size(); ++i) {
    EXPECT_EQ(a.ranking[i].choice, b.ranking[i].choice);
    EXPECT_EQ(a.ranking[i].reason, b.ranking[i].reason);
  }
}

// A cap of exactly what the winner needs keeps it; one byte less drops it. The
// depth of prefetch is fixed, because otherwise it shrinks with the cap.
TEST_F(SearchSizes, ACapOneByteTooSmall) {
  options_.zero.prefetch = 1;
  const ZeroSearch free = search("dp=8");
  const RankedZero best = free.ranking.front();
  const ZeroSearch exact = search("dp=8", best.weight.memory_bytes);
  EXPECT_EQ(exact.ranking.front().choice, best.choice);
  const ZeroSearch tight = search("dp=8", best.weight.memory_bytes - 1);
  ASSERT_TRUE(tight.is_found());
  EXPECT_NE(tight.ranking.front().choice, best.choice);
  for (const RankedZero& ranked : tight.ranking)
    EXPECT_EQ(ranked.verdict == ZeroVerdict::kFits,
              ranked.weight.memory_bytes < best.weight.memory_bytes);
}

TEST_F(SearchSizes, NothingFitsInOneByte) {
  const ZeroSearch none = search("dp=4", 1);
  EXPECT_FALSE(none.is_found());
  EXPECT_THAT(none.summary(), HasSubstr("the nearest is"));
  for (const RankedZero& ranked : none.ranking)
    EXPECT_GE(ranked.weight.memory_bytes,
              none.ranking.front().weight.memory_bytes);
}

// What cannot fit is not planned; the ranking of the others is that without a
// cap, and "nothing fits" names a cure.
TEST_F(SearchSizes, DropsWhatCannotFitBeforeItIsPlanned) {
  const ZeroSearch none = search("dp=8", 1);
  for (const RankedZero& ranked : none.ranking) {
    EXPECT_FALSE(ranked.is_planned());
    EXPECT_EQ(ranked.weight.seconds, 0);
  }
  EXPECT_THAT(none.summary(), HasSubstr("; try a larger tp"));
}

TEST_F(SearchSizes, OneRankHasOneChoice) {
  const ZeroSearch one = search("tp=2");
  ASSERT_EQ(one.ranking.size(), 1u);
  EXPECT_EQ(one.ranking[0].choice.sizes, (ZeroSizes{1, 1, 1}));
  EXPECT_EQ(one.ranking[0].reason, "the only choice");
}

// Broadcast weights require z2 = z3: all other sizes keep their refusal.
TEST_F(SearchSizes, RefusalsStayInTheRanking) {
  options_.strategy = "layerwise";
  const ZeroSearch found = search("dp=4");
  ASSERT_TRUE(found.is_found());
  EXPECT_EQ(found.ranking.back().verdict, ZeroVerdict::kRefused);
  EXPECT_THAT(found.ranking.back().reason, HasSubstr("requires z2 = z3"));
}

TEST_F(SearchSizes, CutsExpertsOnTheRanksOfDenseTensors) {
  model_ = toy_moe(2);
  workload_.compute.experts_per_token = 2;
  const ZeroSearch moe = search("dp=2,ep=2");
  ASSERT_EQ(moe.ranking.size(), all_zero_sizes(4).size());
  for (const RankedZero& ranked : moe.ranking)
    EXPECT_EQ(ranked.verdict, ZeroVerdict::kFits);
}

// Slow links between nodes of four and little memory: groups stay in a node.
TEST_F(SearchSizes, SlowLinksKeepGroupsInsideNodes) {
  options_.links = {1e9, 1e4, 0, false};
  const ZeroSearch free = search("dp=8");
  std::vector<int64_t> memory;
  for (const RankedZero& r : free.ranking)
    memory.push_back(r.weight.memory_bytes);
  std::ranges::sort(memory);
  const ZeroSearch tight = search("dp=8", memory[memory.size() / 3]);
  ASSERT_TRUE(tight.is_found());
  EXPECT_LE(tight.ranking.front().choice.sizes.places(), 4);
}

}  // namespace
}  // namespace canzona::zero_search_test

#include "canzona/report/shown_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "canzona/base/error.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::places_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Coordinates, AreThoseOfTheMesh) {
  for (const char* text : {"dp=1", "dp=3,tp=2", "dp=2,cp=3,tp=2,pp=2,ep=2"}) {
    const Mesh mesh = parse_mesh(text);
    for (int32_t rank = 0; rank < mesh.world(); ++rank) {
      const Coordinates at = coordinates_of(mesh, rank);
      EXPECT_EQ(mesh.rank(at.stage, at.home, at.t), rank);
      EXPECT_EQ((at.dp * mesh.ep + at.ep) * mesh.cp + at.cp, at.home);
      const int32_t expert_home = at.dp * mesh.cp + at.cp;
      EXPECT_EQ(mesh.home_of_expert(expert_home, at.ep), at.home);
    }
  }
}

TEST(Coordinates, AxesOfOneAreLeftOut) {
  EXPECT_EQ(coordinates_text(parse_mesh("dp=2,tp=4"), 6), "dp 1, tp 2");
  EXPECT_EQ(coordinates_text(parse_mesh("dp=1"), 0), "the only rank");
}

TEST(OwnerRanks, AgreeWithComputes) {
  for (const std::string& strategy : strategy_names()) {
    const ReportPlan shown = shown_plan({.strategy = strategy});
    for (size_t m = 0; m < shown.plan.matrices.size(); ++m) {
      const auto matrix = static_cast<int32_t>(m);
      const auto ranks = owner_ranks(shown.plan.parts[0], matrix);
      const std::set<int32_t> owners(ranks.begin(), ranks.end());
      EXPECT_EQ(owners.size(), ranks.size());
      for (int32_t rank = 0; rank < shown.plan.mesh.world(); ++rank)
        EXPECT_EQ(computes(shown.plan.parts[0], rank, matrix),
                  owners.contains(rank))
            << strategy << " matrix " << m << " rank " << rank;
    }
  }
}

TEST(OwnerRanks, AreThoseThatThePredictionCounts) {
  for (const std::string& strategy : strategy_names()) {
    const ReportPlan shown = shown_plan({.strategy = strategy});
    std::vector<int32_t> counts(shown.ranks.size(), 0);
    for (size_t m = 0; m < shown.plan.matrices.size(); ++m)
      for (const int32_t rank :
           owner_ranks(shown.plan.parts[0], static_cast<int32_t>(m)))
        ++counts[static_cast<size_t>(rank)];
    for (size_t r = 0; r < counts.size(); ++r)
      EXPECT_EQ(counts[r], shown.ranks[r].num_matrices) << strategy << " " << r;
  }
}

TEST(RegionOf, TensorsOfARegionLieSideBySide) {
  const Plan plan = shown_plan().plan;
  for (const Bucket& bucket : plan.parts[0].buckets) {
    int64_t end = 0;
    for (int32_t i = 0; i < std::ssize(bucket.tensors); ++i) {
      if (i == bucket.num_matrix_tensors) end = 0;
      const BucketRegion region =
          region_of(plan.parts[0], bucket.tensors[static_cast<size_t>(i)]);
      EXPECT_EQ(region.offset, end);
      end += region.elements;
      EXPECT_LE(end, region.total);
    }
  }
}

TEST(FindByName, FindsMatricesAndTensors) {
  const Plan plan = shown_plan().plan;
  EXPECT_EQ(find_by_name(plan, "layers.1.up").matrices.size(), 1U);
  const Found norm = find_by_name(plan, "layers.1.norm");
  EXPECT_TRUE(norm.matrices.empty());
  EXPECT_EQ(plan.model.tensors[static_cast<size_t>(norm.tensor)].name,
            "layers.1.norm");
}

TEST(FindByName, NamesTheNearest) {
  const Plan plan = shown_plan().plan;
  EXPECT_THAT([&] { find_by_name(plan, "layers.1.uo"); },
              ThrowsMessage<UsageError>(HasSubstr("'layers.1.up'")));
}

TEST(CheckNumber, SaysHowManyThereAre) {
  EXPECT_NO_THROW(check_number(3, 4, "--rank", "rank"));
  for (const int64_t bad : {-1, 4})
    EXPECT_THAT([&] { check_number(bad, 4, "--rank", "rank"); },
                ThrowsMessage<UsageError>(HasSubstr("4 ranks")));
}

}  // namespace
}  // namespace canzona::report::places_test

#include "canzona/sim/cluster.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/ports.h"

namespace canzona::sim::cluster_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kThreeLevels = R"({
  "format": "canzona.cluster", "version": 1, "name": "three levels",
  "card": {"name": "a card", "tflops": 400, "cost_table": "card.json"},
  "levels": [
    {"name": "node", "ranks": 8, "bytes_per_second": 400e9,
     "latency_seconds": 2e-6},
    {"name": "pod", "ranks": 64, "bytes_per_second": 50e9,
     "latency_seconds": 5e-6},
    {"name": "cluster", "ranks": 1024, "bytes_per_second": 40e9,
     "latency_seconds": 9e-6, "oversubscription": 2}],
  "spread": {"compute": 0.02, "length": 0.5},
  "collectives": "node"})";

// The text with `from` replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kThreeLevels;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Cluster three_levels() { return Cluster::parse(kThreeLevels, "c.json"); }

TEST(Cluster, IsReadFromJson) {
  const Cluster cluster = three_levels();
  EXPECT_EQ(cluster.name, "three levels");
  EXPECT_EQ(cluster.card.flops_per_second, 400e12);
  EXPECT_EQ(cluster.card.cost_table, "card.json");
  ASSERT_EQ(cluster.levels.size(), 3u);
  EXPECT_EQ(cluster.levels[2].rate(), 20e9);
  EXPECT_EQ(cluster.ranks_per_node(), 8);
  EXPECT_EQ(cluster.most_ranks(), 1024);
  EXPECT_EQ(cluster.spread.compute, 0.02);
  EXPECT_EQ(cluster.spread.length, 0.5);
  EXPECT_EQ(cluster.collectives, "node");
}

TEST(Cluster, NeedsNeitherTableNorSpread) {
  const Cluster cluster = Cluster::parse(
      R"({"format": "canzona.cluster", "version": 1, "name": "one node",
          "card": {"name": "a card", "tflops": 0.5},
          "levels": [{"name": "node", "ranks": 16,
                      "bytes_per_second": 1e9}]})",
      "c.json");
  EXPECT_EQ(cluster.card.cost_table, "");
  EXPECT_EQ(cluster.levels[0].latency_seconds, 0);
  EXPECT_EQ(cluster.levels[0].oversubscription, 1);
  EXPECT_EQ(cluster.spread, RankSpread());
  EXPECT_EQ(cluster.collectives, "");
  EXPECT_EQ(links_of(cluster.levels).inter_bytes_per_second, 1e9);
}

struct RefusedCluster {
  const char* from;
  const char* to;
  const char* says;
};

class RefusedClusters : public ::testing::TestWithParam<RefusedCluster> {};

TEST_P(RefusedClusters, NameThePlace) {
  const auto [from, to, says] = GetParam();
  EXPECT_THAT(
      [&] { Cluster::parse(with(from, to), "c.json"); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("c.json"), HasSubstr(says))))
      << to;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedClusters,
    ::testing::Values(
        RefusedCluster{"\"ranks\": 64", "\"ranks\": 60",
                       "levels[1]: level 'pod' has 60 ranks, which is not a "
                       "multiple of the 8 of level 'node'"},
        RefusedCluster{"\"ranks\": 64", "\"ranks\": 8", "not a multiple"},
        RefusedCluster{"\"ranks\": 64", "\"ranks\": 0", "ranks"},
        RefusedCluster{"\"ranks\": 64", "\"ranks\": 64.5", "ranks"},
        RefusedCluster{"\"bytes_per_second\": 50e9", "\"bytes_per_second\": 0",
                       "levels[1]: bytes_per_second is 0, expected more"},
        RefusedCluster{"\"bytes_per_second\": 50e9", "\"bytes_per_second\": -1",
                       "levels[1]: bytes_per_second is -1"},
        RefusedCluster{"\"bytes_per_second\": 50e9,", "", "bytes_per_second"},
        RefusedCluster{"\"bytes_per_second\": 50e9",
                       "\"bytes_per_seconds\": 50e9",
                       "did you mean 'bytes_per_second'"},
        RefusedCluster{"\"latency_seconds\": 5e-6", "\"latency_seconds\": -1",
                       "latency_seconds is -1"},
        RefusedCluster{"\"latency_seconds\": 5e-6", "\"latency_seconds\": 1e-6",
                       "below the 2e-06 s of level 'node'"},
        RefusedCluster{"\"oversubscription\": 2", "\"oversubscription\": 0",
                       "levels[2]: oversubscription is 0"},
        RefusedCluster{"\"oversubscription\": 2", "\"oversubscription\": 0.5",
                       "expected at least 1"},
        RefusedCluster{"\"tflops\": 400", "\"tflops\": 0", "card: tflops is 0"},
        RefusedCluster{"\"tflops\": 400", "\"tflops\": -3",
                       "card: tflops is -3"},
        RefusedCluster{"\"tflops\": 400, ", "", "tflops"},
        RefusedCluster{"\"tflops\": 400", "\"tflops\": \"fast\"", "tflops"},
        RefusedCluster{"\"compute\": 0.02", "\"compute\": -0.1",
                       "spread: compute is -0.1, expected 0 to 1"},
        RefusedCluster{"\"compute\": 0.02", "\"compute\": 2",
                       "spread: compute is 2"},
        RefusedCluster{"\"collectives\": \"node\"",
                       "\"collectives\": \"rings\"", "did you mean 'ring'"},
        RefusedCluster{"\"spread\"", "\"spred\"", "did you mean 'spread'"},
        RefusedCluster{"\"version\": 1", "\"version\": 2",
                       "version 2, expected 1"},
        RefusedCluster{"canzona.cluster", "canzona.plan",
                       "expected \"format\": \"canzona.cluster\""},
        RefusedCluster{"three levels", "\\u001b[31m", "printable"}));

TEST(Cluster, WantsLevels) {
  EXPECT_THAT(
      [] {
        Cluster::parse(
            R"({"format": "canzona.cluster", "version": 1, "name": "x",
                "card": {"name": "y", "tflops": 1}, "levels": []})",
            "c.json");
      },
      ThrowsMessage<UsageError>(HasSubstr("1 to 16 levels")));
  EXPECT_THROW(Cluster::parse("[]", "c.json"), UsageError);
  EXPECT_THROW(Cluster::parse("", "c.json"), UsageError);
}

TEST(Cluster, HasRoomForTheMesh) {
  const Cluster cluster = three_levels();
  EXPECT_NO_THROW(check_cluster(cluster, parse_mesh("dp=128,tp=8")));
  EXPECT_THAT([&] { check_cluster(cluster, parse_mesh("dp=256,tp=8")); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("2048 ranks"), HasSubstr("has 1024"))));
  EXPECT_THAT([&] { check_cluster(cluster, parse_mesh("dp=4")); },
              ThrowsMessage<UsageError>(HasSubstr("8 to 16384")));
  EXPECT_THAT([&] { check_cluster(cluster, parse_mesh("dp=32768")); },
              ThrowsMessage<UsageError>(HasSubstr("8 to 16384")));
}

TEST(LinkLevels, AreThoseOfTheSmallestBlockThatHasBoth) {
  const std::vector<LinkLevel> levels = three_levels().levels;
  EXPECT_EQ(level_of(levels, 0, 7), 0u);
  EXPECT_EQ(level_of(levels, 7, 8), 1u);
  EXPECT_EQ(level_of(levels, 0, 63), 1u);
  EXPECT_EQ(level_of(levels, 63, 64), 2u);
  EXPECT_EQ(level_of(levels, 0, 5000), 2u);
}

// Two of eight peers are beyond the pod, where a rank has 20 GB/s instead of
// 50.
TEST(LinkLevels, FartherPeersTakeLonger) {
  const std::vector<LinkLevel> levels = three_levels().levels;
  const FarLinks far = far_links(levels, {3, 6, 2});
  EXPECT_DOUBLE_EQ(far.scale, (6 + 2 * 2.5) / 8);
  EXPECT_DOUBLE_EQ(far.added_latency_seconds, 4e-6);
  EXPECT_EQ(far_links(levels, {3, 6, 0}).scale, 1);
  EXPECT_EQ(far_links(levels, {3, 0, 0}).added_latency_seconds, 0);
}

// A level wider than the one below it does not help: messages pass through
// both.
TEST(LinkLevels, TheNarrowestCounts) {
  std::vector<LinkLevel> levels = three_levels().levels;
  levels[2].bytes_per_second = 900e9;
  levels[2].oversubscription = 1;
  EXPECT_EQ(far_links(levels, {0, 0, 5}).scale, 1);
}

// Tables of order statistics: 1.0294 of 4, 1.5388 of 10, 2.5076 of 100.
TEST(RankSpread, TheSlowestOfManyIsSlower) {
  EXPECT_EQ(expected_largest(1), 0);
  EXPECT_NEAR(expected_largest(4), 1.0294, 0.02);
  EXPECT_NEAR(expected_largest(10), 1.5388, 0.01);
  EXPECT_NEAR(expected_largest(100), 2.5076, 0.01);
  EXPECT_NEAR(expected_largest(16384), 4.0, 0.1);
  EXPECT_EQ(slowest_of(100, 0), 1);
  EXPECT_NEAR(slowest_of(100, 0.1), 1.25076, 0.001);
  for (int64_t n = 1; n < 20000; n *= 3)
    EXPECT_LT(expected_largest(n), expected_largest(3 * n));
}

}  // namespace
}  // namespace canzona::sim::cluster_test

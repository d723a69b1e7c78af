#include "canzona/sim/known_gpus.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/error.h"

namespace canzona::sim::known_gpus_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The vendor's page: 1,979 Tflop/s of sparse products, NVLink of 900 GB/s in
// both directions, 141 GB.
TEST(KnownGpus, CountHalfOfSparseProductsAndOfBothDirections) {
  const KnownGpu& gpu = known_gpu("h200");
  EXPECT_NEAR(gpu.peak_flops, 1979e12 / 2, 1e12);
  EXPECT_EQ(gpu.intra_bytes_per_second, 900e9 / 2);
  EXPECT_EQ(gpu.inter_bytes_per_second, 400e9 / 8);
  EXPECT_NEAR(static_cast<double>(gpu.memory_bytes), 141e9, 0.08 * 141e9);
}

TEST(KnownGpus, AreNamedOnceAndHaveSources) {
  std::set<std::string> names;
  for (const KnownGpu& gpu : known_gpus()) {
    EXPECT_TRUE(names.insert(gpu.name).second) << gpu.name;
    EXPECT_FALSE(gpu.source.empty()) << gpu.name;
    EXPECT_GT(usual_memory_cap(gpu), 0) << gpu.name;
    EXPECT_LE(gpu.inter_bytes_per_second, gpu.intra_bytes_per_second)
        << gpu.name;
  }
}

TEST(KnownGpus, ProposeTheNearestName) {
  const auto refused = [](const char* name) {
    try {
      known_gpu(name);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("h100"),
              AllOf(HasSubstr("--gpu 'h100': expected h100-80"),
                    HasSubstr("did you mean 'h100-80'?")));
  EXPECT_THAT(refused("mi300"), HasSubstr("did you mean 'mi300x'?"));
  EXPECT_THAT(refused(""), HasSubstr("expected h100-80"));
}

TEST(KnownGpus, HaveAStatedShareOfTheirPeakUnlessARateIsGiven) {
  Workload stated, given;
  set_rates(known_gpu("a100-80"), 0, stated);
  EXPECT_EQ(stated.compute.flops_per_second, 156e12);
  EXPECT_NEAR(stated.compute.attention_rate(), 109.2e12, 1e6);
  EXPECT_EQ(stated.rates,
            "a100-80: 312 Tflop/s × 0.5 in products and × 0.35 in attention, "
            "stated");
  set_rates(known_gpu("a100-80"), 200e12, given);
  EXPECT_EQ(given.compute.flops_per_second, 200e12);
  EXPECT_EQ(given.compute.attention_rate(), 200e12);
  EXPECT_EQ(given.peak_flops, 312e12);
  EXPECT_EQ(given.rates, "a100-80: 200 Tflop/s given, of 312");
}

TEST(KnownGpus, MakeAClusterWithRoomForAllRanks) {
  PlanOptions options;
  options.links = usual_links(known_gpu("h100-80"));
  options.ranks_per_node = 4;
  const Cluster cluster = cluster_of(known_gpu("h100-80"), options, 400e12, 30);
  EXPECT_EQ(cluster.ranks_per_node(), 4);
  EXPECT_EQ(cluster.most_ranks(), 32);
  EXPECT_EQ(cluster.levels[1].bytes_per_second, 50e9);
  EXPECT_EQ(cluster.card.flops_per_second, 400e12);
  // A single node still has a level around it.
  EXPECT_EQ(cluster_of(known_gpu("h100-80"), options, 1, 4).most_ranks(), 8);
}

}  // namespace
}  // namespace canzona::sim::known_gpus_test

#include "canzona/plan/search/instances.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace canzona::plan::tensor_swaps_test {
namespace {

std::vector<int64_t> loads_of(const DealtStage& stage) {
  std::vector<int64_t> loads(stage.zones.size(), 0);
  for (const DealtTensor& t : stage.tensors) loads[t.rank] += t.load;
  return loads;
}

int64_t largest_load(const DealtStage& stage) {
  const std::vector<int64_t> loads = loads_of(stage);
  return *std::max_element(loads.begin(), loads.end());
}

// Returns what the fullest home keeps above the cap of some bucket.
int64_t overflow(const DealtStage& stage) {
  int64_t most = 0;
  for (size_t b = 0; b < stage.caps.size(); ++b) {
    std::vector<int64_t> held(stage.homes.size(), 0);
    for (const DealtTensor& t : stage.tensors) {
      const auto home = static_cast<size_t>(stage.homes[t.rank]);
      if (t.bucket == b) held[home] += t.elements;
    }
    for (int64_t h : held) most = std::max(most, h - stage.caps[b]);
  }
  return most;
}

TEST(TensorSwaps, LevelsLoadsWhereBytesAllow) {
  DealtStage stage;
  stage.zones = {0, 0};
  stage.homes = {0, 1};
  stage.caps = {10};
  stage.tensors = {{6, 4, 0, -1, 0}, {4, 4, 0, -1, 0}, {2, 4, 0, -1, 1}};
  swap_tensors(stage, 1000);
  EXPECT_EQ(largest_load(stage), 6);
}

TEST(TensorSwaps, KeepsTheCapEvenIfLoadsStayUneven) {
  DealtStage stage;
  stage.zones = {0, 0};
  stage.homes = {0, 1};
  stage.caps = {8, 8};
  // Rank 1 is full in bucket 0, so nothing of it may come over.
  stage.tensors = {{6, 4, 0, -1, 0}, {4, 4, 0, -1, 0}, {1, 8, 1, -1, 1}};
  stage.caps = {4, 8};
  stage.tensors.push_back({1, 4, 0, -1, 1});
  swap_tensors(stage, 1000);
  EXPECT_EQ(overflow(stage), 4);  // that of the start, on rank 0
  EXPECT_LE(largest_load(stage), 10);
}

TEST(TensorSwaps, MovesFreelyInsideAHome) {
  DealtStage stage;
  stage.zones = {0, 0};
  stage.homes = {0, 0};
  stage.caps = {8};
  stage.tensors = {{5, 4, 0, -1, 0}, {5, 4, 0, -1, 0}};
  swap_tensors(stage, 1000);
  EXPECT_EQ(largest_load(stage), 5);
}

TEST(TensorSwaps, ExpertsStayInTheirZone) {
  DealtStage stage;
  stage.zones = {0, 1};
  stage.homes = {0, 1};
  stage.caps = {100};
  stage.tensors = {{5, 1, 0, 0, 0}, {5, 1, 0, 0, 0}};
  swap_tensors(stage, 1000);
  EXPECT_EQ(loads_of(stage), (std::vector<int64_t>{10, 0}));
}

TEST(TensorSwaps, NeverRaisesLoadsOrOverflow) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    DealtStage stage;
    const size_t tp = 1 + random() % 2;
    stage.zones.assign(tp * (1 + random() % 4), 0);
    for (size_t r = 0; r < stage.zones.size(); ++r)
      stage.homes.push_back(static_cast<int32_t>(r / tp));
    stage.caps = {static_cast<int64_t>(random() % 40),
                  static_cast<int64_t>(random() % 40)};
    for (size_t i = 0; i < random() % 20; ++i) {
      stage.tensors.push_back({static_cast<int64_t>(random() % 30),
                               static_cast<int64_t>(random() % 9), random() % 2,
                               -1, random() % stage.zones.size()});
    }
    const int64_t load = largest_load(stage), over = overflow(stage);
    const size_t count = stage.tensors.size();
    swap_tensors(stage, 100'000);
    EXPECT_LE(largest_load(stage), load);
    EXPECT_LE(overflow(stage), std::max<int64_t>(over, 0));
    EXPECT_EQ(stage.tensors.size(), count);
  }
}

}  // namespace
}  // namespace canzona::plan::tensor_swaps_test

#include "canzona/sim/mesh_space.h"

#include <gmock/gmock.h>

#include "canzona/sim/test_mesh.h"

namespace canzona::sim::mesh_space_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_of(const MeshSpace& space) {
  std::vector<std::string> names;
  for (const Mesh& mesh : space.meshes) names.push_back(to_string(mesh));
  return names;
}

TEST(MeshSpace, EveryMeshOfFourRanks) {
  // 4 query heads, 2 layers; pp=4 does not divide the layers.
  EXPECT_THAT(
      names_of(meshes_in_space(toy_model(2), 4, 4, {})),
      ElementsAre("dp=4", "dp=2,pp=2", "dp=2,tp=2", "tp=2,pp=2", "tp=4"));
  EXPECT_THAT(names_of(meshes_in_space(toy_moe(1, 2), 2, 4, {})),
              ElementsAre("dp=2", "ep=2", "tp=2"));
}

TEST(MeshSpace, TensorParallelismStaysInsideANode) {
  MeshLimits limits;
  EXPECT_THAT(names_of(meshes_in_space(toy_model(1), 4, 2, limits)),
              ElementsAre("dp=4", "dp=2,tp=2"));
  limits.tp_across_nodes = true;
  EXPECT_THAT(names_of(meshes_in_space(toy_model(1), 4, 2, limits)),
              ElementsAre("dp=4", "dp=2,tp=2", "tp=4"));
}

TEST(MeshSpace, PrimeNumbersLeaveDataParallelism) {
  const MeshSpace space = meshes_in_space(toy_model(3), 7, 8, {});
  EXPECT_THAT(names_of(space), ElementsAre("dp=7"));
  EXPECT_EQ(space.refused, 2);  // tp=7, pp=7
  EXPECT_THAT(space.refusal, HasSubstr("tp=7"));
}

TEST(MeshSpace, LimitsFixAndForbid) {
  MeshLimits limits;
  limits.fix("tp=2,recompute=on,tokens=64,zero=z1=2:z2=2:z3=1");
  EXPECT_EQ(limits.tp, 2);
  EXPECT_EQ(limits.recompute, true);
  EXPECT_EQ(limits.tokens, 64);
  EXPECT_EQ(limits.zero, "z1=2,z2=2,z3=1");
  limits.forbid("pp,hierarchical");
  EXPECT_THAT(names_of(meshes_in_space(toy_model(2), 4, 4, limits)),
              ElementsAre("dp=2,tp=2"));
}

TEST(MeshSpace, ErrorsNameTheWordAndWhatWasExpected) {
  MeshLimits limits;
  EXPECT_THAT(error_of([&] { limits.fix("tp"); }),
              HasSubstr("expected NAME=VALUE such as tp=8, got 'tp'"));
  EXPECT_THAT(error_of([&] { limits.fix("tpp=8"); }),
              HasSubstr("did you mean"));
  EXPECT_THAT(error_of([&] { limits.fix("tp=8,tp=4"); }),
              HasSubstr("tp twice"));
  EXPECT_THAT(error_of([&] { limits.fix("tp=x"); }), HasSubstr("fix tp"));
  EXPECT_THAT(error_of([&] { limits.fix("zero=zero9"); }),
              HasSubstr("expected none, zero1, zero2, zero3"));
  EXPECT_THAT(error_of([&] { limits.fix("recompute=yes"); }),
              HasSubstr("expected on or off"));
  EXPECT_THAT(error_of([&] { limits.forbid("dp"); }),
              HasSubstr("expected tp, pp, ep, zero, hierarchical, recompute"));
}

TEST(MeshSpace, MicroBatchesAreWholeSequences) {
  const std::vector<BatchSplit> splits = batch_splits(64 * 12, 64, 2, {});
  // Six sequences on each of two ranks.
  EXPECT_THAT(splits, ElementsAre(BatchSplit{64, 6}, BatchSplit{128, 3},
                                  BatchSplit{192, 2}, BatchSplit{384, 1}));
  EXPECT_THAT(batch_splits(64, 64, 2, {}), IsEmpty());
  MeshLimits limits;
  limits.tokens = 100;
  EXPECT_THAT(batch_splits(1000, 64, 2, limits),
              ElementsAre(BatchSplit{100, 5}));
}

TEST(MeshSpace, SizesFollowLimits) {
  MeshLimits limits;
  EXPECT_EQ(sizes_in_space(8, limits, "").size(), 30u);
  EXPECT_THAT(sizes_in_space(8, limits, "hier:4"),
              ElementsAre(ZeroSizes{8, 4, 4}));
  EXPECT_THAT(sizes_in_space(6, limits, "hier:4"), IsEmpty());
  limits.no_hierarchical = true;
  EXPECT_THAT(
      sizes_in_space(8, limits, ""),
      ElementsAre(ZeroSizes{8, 1, 1}, ZeroSizes{8, 8, 1}, ZeroSizes{8, 8, 8}));
  limits.no_zero = true;
  EXPECT_THAT(sizes_in_space(8, limits, ""), ElementsAre(ZeroSizes{8, 1, 1}));
}

TEST(MeshSpace, KindsAreNamedAfterAxesOrZero) {
  const auto kind = [](const char* mesh, ZeroSizes sizes) {
    return std::string(
        to_string(kind_of({.mesh = parse_mesh(mesh), .dense = sizes})));
  };
  EXPECT_EQ(kind("dp=8", {8, 1, 1}), "zero1");
  EXPECT_EQ(kind("dp=8", {8, 8, 1}), "zero2 or zero3");
  EXPECT_EQ(kind("dp=8", {8, 4, 4}), "hierarchical zero");
  EXPECT_EQ(kind("dp=8", {4, 1, 1}), "hierarchical zero");
  EXPECT_EQ(kind("dp=8,tp=2", {8, 4, 4}), "tp");
  EXPECT_EQ(kind("dp=8,pp=2", {8, 1, 1}), "pp");
  EXPECT_EQ(kind("dp=8,tp=2,pp=2,ep=2", {16, 1, 1}), "tp+pp+ep");
}

TEST(MeshSpace, AChoiceInWords) {
  EXPECT_EQ(to_string(MeshChoice{.mesh = parse_mesh("dp=8,tp=2"),
                                 .dense = {8, 8, 8},
                                 .tokens = 4096,
                                 .num_micro_batches = 4,
                                 .recompute = true,
                                 .reach = Reach::kPerNode}),
            "dp=8,tp=2 zero3, 4 x 4096 tokens, recompute, collectives node");
}

}  // namespace
}  // namespace canzona::sim::mesh_space_test

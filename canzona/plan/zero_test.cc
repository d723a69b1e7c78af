// Sizes of hierarchical ZeRO, and the mesh they fold.
#include "canzona/plan/zero.h"

#include <gtest/gtest.h>

#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/plan/testing/test_support.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::plan_zero_test {
namespace {

std::string refusal(const std::string& text, int32_t homes) {
  try {
    check_zero(parse_zero(text, homes), homes);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ZeroName, IsWhatOneTypes) {
  EXPECT_EQ(zero_name({16, 1, 1}, 16), "zero1");
  EXPECT_EQ(zero_name({0, 1, 1}, 16), "zero1");
  EXPECT_EQ(zero_name({16, 16, 16}, 16), "zero3");
  EXPECT_EQ(zero_name({16, 8, 8}, 16), "hier:8");
  EXPECT_EQ(zero_name({4, 4, 4}, 16), "replica:4");
  EXPECT_EQ(zero_name({1, 1, 1}, 16), "none");
  EXPECT_EQ(zero_name({16, 4, 2}, 16), "z1=16,z2=4,z3=2");
  for (const int32_t homes : {1, 2, 4, 7, 8, 12}) {
    for (const ZeroSizes& sizes : all_zero_sizes(homes)) {
      EXPECT_EQ(parse_zero(zero_name(sizes, homes), homes), sizes);
    }
  }
}

TEST(ZeroSizes, HaveNames) {
  EXPECT_EQ(parse_zero("none", 16), (ZeroSizes{1, 1, 1}));
  EXPECT_EQ(parse_zero("zero1", 16), (ZeroSizes{16, 1, 1}));
  EXPECT_EQ(parse_zero("zero2", 16), (ZeroSizes{16, 16, 1}));
  EXPECT_EQ(parse_zero("zero3", 16), (ZeroSizes{16, 16, 16}));
  EXPECT_EQ(parse_zero("replica:4", 16), (ZeroSizes{4, 4, 4}));
  EXPECT_EQ(parse_zero("hier:4", 16), (ZeroSizes{16, 4, 4}));
  EXPECT_EQ(parse_zero("z1=8,z3=2", 16), (ZeroSizes{8, 1, 2}));
  EXPECT_EQ(parse_zero("z2=4", 16), (ZeroSizes{16, 4, 1}));
  for (const ZeroSizes& sizes : all_zero_sizes(12))
    EXPECT_EQ(parse_zero(to_string(sizes), 12), sizes);
}

TEST(ZeroSizes, AreRefusedByTheDivisionThatFails) {
  EXPECT_TRUE(says(refusal("z1=3", 4),
                   "z1 = 3 does not divide the 4 data-parallel ranks"));
  EXPECT_TRUE(says(refusal("z1=4,z2=3", 8), "z2 = 3 does not divide z1 = 4"));
  EXPECT_TRUE(says(refusal("z1=4,z3=8", 8), "z3 = 8 does not divide z1 = 4"));
  EXPECT_TRUE(says(refusal("z1=6,z2=2,z3=3", 6),
                   "neither of z2 = 2 and z3 = 3 divides the other"));
  EXPECT_TRUE(says(refusal("hier:5", 8), "z2 = 5 does not divide z1 = 8"));
  EXPECT_TRUE(says(refusal("zero4", 8), "expected none, zero1"));
  EXPECT_TRUE(says(refusal("hier:", 8), "zero hier"));
  EXPECT_TRUE(says(refusal("z1=8,z1=8", 8), "z1 twice"));
  EXPECT_TRUE(says(refusal("z4=8", 8), "unknown size 'z4'"));
  EXPECT_EQ(refusal("hier:4", 8), "");
}

// Counted by hand: there are 4 choices of z1, and z2 and z3 are any powers of
// two up to it.
TEST(ZeroSizes, AreThirtyForEightRanks) {
  EXPECT_EQ(all_zero_sizes(8).size(), 30U);
  EXPECT_EQ(all_zero_sizes(1).size(), 1U);
  EXPECT_EQ(all_zero_sizes(3).size(), 5U);
  for (const ZeroSizes& sizes : all_zero_sizes(8)) check_zero(sizes, 8);
}

TEST(FoldedMesh, HasGroupsAndPlanes) {
  const Mesh mesh = parse_mesh("dp=16,tp=2,pp=2");
  EXPECT_EQ(fold(mesh, {16, 1, 1}), mesh);
  const Mesh grid = fold(mesh, {8, 4, 2});
  EXPECT_EQ(grid.dp, 2);
  EXPECT_EQ(grid.tp, 8);
  EXPECT_EQ(grid.tp_ranks(), 2);
  EXPECT_EQ(grid.places, 4);
  EXPECT_EQ(grid.pp, 2);
}

// A place's own slice lies among those that it keeps for the smaller size.
TEST(FoldedMesh, GivesEveryPlaceASliceAmongItsNeighbours) {
  for (const ZeroSizes& sizes : all_zero_sizes(24)) {
    const Mesh grid = fold(parse_mesh("dp=24"), sizes);
    std::set<int32_t> slices;
    for (int32_t place = 0; place < grid.places; ++place) {
      const int32_t own = grid.slice_of(place);
      slices.insert(own);
      for (const int32_t z : {sizes.z2, sizes.z3}) {
        const Extent kept = kept_slices(grid, place, z);
        EXPECT_LE(kept.first, own) << to_string(sizes);
        EXPECT_LT(own, kept.first + kept.count) << to_string(sizes);
        EXPECT_EQ(kept.count, grid.places / z);
      }
    }
    EXPECT_EQ(std::ssize(slices), grid.places);
    EXPECT_EQ(*slices.rbegin(), grid.places - 1);
  }
}

// Layers of matrices of 16 columns.
Model equal_layers(int32_t layers, int each, int64_t rows) {
  std::vector<Tensor> tensors;
  for (int32_t layer = 0; layer < layers; ++layer)
    for (int i = 0; i < each; ++i)
      tensors.push_back(matrix_tensor(cat("layers.", layer, ".w", i), rows, 16,
                                      Cut::kNone, layer));
  return model_of(std::move(tensors));
}

PlanOptions zero_options(const ZeroSizes& sizes) {
  PlanOptions options;
  options.zero.sizes = sizes;
  options.parameters = DType::kFp32;
  return options;
}

TEST(ZeroPlans, AreSoundAndAreReadBack) {
  for (const ZeroSizes& sizes : all_zero_sizes(8)) {
    SCOPED_TRACE(to_string(sizes));
    const Plan plan = plan_of(toy_moe(), "dp=8,tp=2", zero_options(sizes));
    EXPECT_EQ(validate(plan), std::vector<std::string>());
    const Plan again = plan_from_json(plan_to_json(plan), "plan").plan;
    EXPECT_EQ(again.digest, plan.digest);
    EXPECT_EQ(again.parts[0].grid, plan.parts[0].grid);
    EXPECT_EQ(again.options.zero, plan.options.zero);
  }
}

// Memory follows the formula of the sizes, apart from pools.
TEST(ZeroPlans, TakeTheMemoryOfTheFormula) {
  const Model model = equal_layers(2, 8, 32);
  const int64_t n = 2 * 8 * 32 * 16;
  for (const ZeroSizes& sizes : all_zero_sizes(8)) {
    SCOPED_TRACE(to_string(sizes));
    for (const bool adamw : {false, true}) {
      const Plan plan = plan_of(model, "dp=8", zero_options(sizes),
                                {adamw ? "adamw" : "muon", {}});
      int64_t states = 0;
      for (const RankCost& rank : predict(plan)) {
        EXPECT_EQ(rank.memory.parameters.value(), 4 * n / sizes.z3);
        EXPECT_EQ(rank.memory.gradients.value(), 4 * n / sizes.z2);
        states += rank.memory.states.value();
      }
      EXPECT_EQ(states, 8 * (adamw ? 8 : 4) * n / sizes.z1);
    }
  }
}

TEST(ZeroPlans, RepeatStatesAndWorkInReplicas) {
  const Plan plan = plan_of(toy_moe(), "dp=8", zero_options({2, 2, 2}));
  EXPECT_EQ(plan.parts[0].num_replicas(), 4);
  const std::vector<RankCost> ranks = predict(plan);
  ASSERT_EQ(ranks.size(), 8U);
  for (size_t r = 2; r < 8; ++r) {
    EXPECT_EQ(ranks[r].every_step, ranks[r % 2].every_step);
    EXPECT_EQ(ranks[r].memory.states, ranks[r % 2].memory.states);
  }
}

TEST(ZeroPlans, TakeAsManySlotsAsTheCapLeavesRoomFor) {
  PlanOptions options = zero_options({4, 4, 4});
  const auto most = [&] {
    int64_t bytes = 0;
    for (const RankCost& rank : predict(plan_of(toy_moe(), "dp=4", options)))
      bytes = std::max(bytes, rank.memory.total().value());
    return bytes;
  };
  EXPECT_EQ(plan_of(toy_moe(), "dp=4", options).options.zero.prefetch,
            kUsualPrefetch);
  options.zero.prefetch = 0;
  const int64_t least = most();
  options.zero.prefetch = kAutoPrefetch;
  options.memory_cap_bytes = least;
  EXPECT_EQ(plan_of(toy_moe(), "dp=4", options).options.zero.prefetch, 0);
  EXPECT_EQ(validate(plan_of(toy_moe(), "dp=4", options)).size(), 0U);
  options.memory_cap_bytes = least - 1;
  EXPECT_EQ(validate(plan_of(toy_moe(), "dp=4", options)).size(), 1U);
  options.memory_cap_bytes = 2 * least;
  const Plan roomy = plan_of(toy_moe(), "dp=4", options);
  EXPECT_GT(roomy.options.zero.prefetch, 0);
  EXPECT_EQ(validate(roomy).size(), 0U);
}

TEST(ZeroPlans, AreRefusedWhereAStrategyCannot) {
  PlanOptions options = zero_options({4, 2, 4});
  options.strategy = "replicated";
  EXPECT_THROW(plan_of(toy_moe(), "dp=4", options), UsageError);
  options.zero.sizes = {4, 2, 2};
  EXPECT_NO_THROW(plan_of(toy_moe(), "dp=4", options));
  options.zero.replica_sum = ReplicaSum::kAllReduce;
  EXPECT_THROW(plan_of(toy_moe(), "dp=4", options), UsageError);
}

TEST(ZeroPlans, SayHowModulesReachOtherNodes) {
  PlanOptions options = zero_options({8, 8, 4});
  options.ranks_per_node = 4;
  const Plan direct = plan_of(toy_moe(), "dp=8,tp=2", options);
  EXPECT_EQ(plan_to_json(direct).find("collectives"), std::string::npos);
  options.zero.reach = Reach::kPerNode;
  const Plan plan = plan_of(toy_moe(), "dp=8,tp=2", options);
  EXPECT_NE(plan.digest, direct.digest);
  const std::string json = plan_to_json(plan);
  const Plan again = plan_from_json(json, "plan").plan;
  EXPECT_EQ(again.options.zero, plan.options.zero);
  EXPECT_EQ(again.digest, plan.digest);
  const auto refusal_with = [&](const std::string& from,
                                const std::string& to) -> std::string {
    std::string other = json;
    const size_t at = other.find(from);
    if (at == std::string::npos) return cat("no ", from, " in the plan");
    try {
      plan_from_json(other.replace(at, from.size(), to), "plan");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(says(refusal_with("\"node\"", "\"nodes\""),
                   "collectives 'nodes': expected direct, node or auto"));
  EXPECT_TRUE(says(refusal_with("\"node\"", "\"auto\""),
                   "collectives: 'auto' is for requests"));
  EXPECT_TRUE(
      says(refusal_with("\"ranks_per_node\":4", "\"ranks_per_node\":6"),
           "does not have the same number of ranks on every node of 6"));
}

// Plain storage has no member "zero" in the file unless it is asked for more
// than what is direct anyway.
TEST(ZeroPlans, OfPlainStorageSayThatTheySendOncePerNode) {
  PlanOptions options = zero_options({8, 1, 1});
  options.ranks_per_node = 4;
  const auto plan_with = [&](Reach reach) {
    options.zero.reach = reach;
    return plan_of(toy_moe(), "dp=8", options);
  };
  const Plan direct = plan_with(Reach::kDirect);
  EXPECT_EQ(plan_to_json(direct).find("\"zero\""), std::string::npos);
  const Plan plan = plan_with(Reach::kPerNode);
  const Plan again = plan_from_json(plan_to_json(plan), "plan").plan;
  EXPECT_EQ(again.options.zero.reach, Reach::kPerNode);
  EXPECT_EQ(again.options.zero, plan.options.zero);
  EXPECT_EQ(again.digest, plan.digest);
  EXPECT_EQ(plan_with(Reach::kAuto).digest, plan.digest);
  EXPECT_TRUE(validate(plan).empty());
  // On one node, or on one rank of each, it is the same file.
  for (const int32_t ranks_per_node : {1, 8}) {
    options.ranks_per_node = ranks_per_node;
    const std::string digest = plan_with(Reach::kDirect).digest;
    EXPECT_EQ(plan_with(Reach::kPerNode).digest, digest);
    EXPECT_EQ(plan_with(Reach::kAuto).digest, digest);
  }
}

TEST(ZeroPlans, AreDirectWhereAutoFindsNoPowerOfTwo) {
  PlanOptions options = zero_options({7, 1, 1});
  options.ranks_per_node = 2;
  options.zero.reach = Reach::kAuto;
  const Plan plan = plan_of(toy_moe(), "dp=7", options);
  EXPECT_EQ(plan.options.zero.reach, Reach::kDirect);
  EXPECT_EQ(why_direct(plan),
            "the group of 7 data-parallel ranks from rank 0 to 6 has 2, 2, 2, "
            "1 ranks on its nodes of 2, not the same power of two on each");
  options.zero.reach = Reach::kDirect;
  EXPECT_EQ(plan_of(toy_moe(), "dp=7", options).digest, plan.digest);
  // Modules may travel by three, which changes bits: `auto` does not.
  options.zero = {.sizes = {6, 6, 6}, .reach = Reach::kAuto};
  options.ranks_per_node = 3;
  EXPECT_EQ(plan_of(toy_moe(), "dp=6", options).options.zero.reach,
            Reach::kDirect);
  options.ranks_per_node = 2;
  EXPECT_EQ(plan_of(toy_moe(), "dp=6", options).options.zero.reach,
            Reach::kPerNode);
}

TEST(ZeroPlans, ForgetHowModulesTravelWhereNoneDoes) {
  PlanOptions options = zero_options({8, 1, 1});
  options.zero.reach = Reach::kPerNode;
  EXPECT_EQ(plan_of(toy_moe(), "dp=8", options).options.zero.reach,
            Reach::kDirect);
  options.zero.sizes = {4, 1, 1};
  EXPECT_EQ(plan_of(toy_moe(), "dp=8", options).options.zero.reach,
            Reach::kDirect);
}

// Four nodes of four ranks, four micro-batches: 36 N bytes between nodes, or
// 9 N if each is sent to once, against 1.5 N.
TEST(ZeroPlans, SendATwentyFourthBetweenNodes) {
  const Model model = equal_layers(4, 4, 64);
  const int64_t n = 16 * 64 * 16;
  constexpr int64_t kMicroBatches = 4;
  const auto slow_bytes = [&](const ZeroSizes& sizes,
                              Reach reach = Reach::kDirect) {
    PlanOptions options = zero_options(sizes);
    options.zero.reach = reach;
    options.ranks_per_node = 4;
    const Plan plan = plan_of(model, "dp=16", options);
    int64_t sum = 0;
    for (const PurposeBytes& m : module_bytes(plan, 5)) {
      const auto sent = [&](Purpose purpose) {
        return of(m, purpose).sent_inter;
      };
      sum += kMicroBatches *
             (2 * sent(Purpose::kGatherModule) + sent(Purpose::kScatterModule));
      sum += sent(Purpose::kSum) + sent(Purpose::kPublish) +
             sent(Purpose::kSumReplicas);
    }
    return sum;
  };
  EXPECT_EQ(slow_bytes({16, 16, 16}), 36 * n);
  EXPECT_EQ(slow_bytes({16, 16, 16}, Reach::kPerNode), 9 * n);
  EXPECT_EQ(slow_bytes({16, 4, 4}) * 2, 3 * n);
  EXPECT_EQ(slow_bytes({16, 4, 4}, Reach::kPerNode) * 2, 3 * n);
}

}  // namespace
}  // namespace canzona::plan::plan_zero_test

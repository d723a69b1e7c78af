#include "canzona/plan/storage/storage_owners.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/test_layouts.h"

namespace canzona::plan::storage_owners_test {
namespace {

struct Layout {
  const char* name;
  std::vector<AxisCut> axes;
};
const std::vector<Layout> kLayouts{{"FSDP 4", {{4, 0}}},
                                   {"FSDP 8", {{8, 0}}},
                                   {"FSDP 64", {{64, 0}}},
                                   {"DDP 8", {{8, -1}}},
                                   {"HSDP 8x8", {{8, -1}, {8, 0}}},
                                   {"FSDP 4 x TP 2", {{4, 0}, {2, 1}}}};

double by_bound(const StoragePlan& plan) {
  return static_cast<double>(plan.summary.makespan.value()) /
         static_cast<double>(plan.summary.bound.value());
}

TEST(StorageOwners, AreNearTheBoundForRealModels) {
  for (const char* model : {"qwen3-0.6b", "qwen3-8b"}) {
    for (const char* rule : {"muon", "soap", "shampoo"}) {
      for (const Layout& layout : kLayouts) {
        const auto plan =
            make_storage_plan(storage_model(model, layout.axes, rule));
        EXPECT_LE(by_bound(plan), 1.05)
            << model << ", " << rule << ", " << layout.name;
        EXPECT_EQ(plan.summary.idle_ranks, 0);
      }
    }
  }
}

TEST(StorageOwners, PhasesOfRefreshesAreLevelledStepByStep) {
  const auto plan = make_storage_plan(
      storage_model("qwen3-0.6b", {{4, 0}}, "soap",
                    {{"precondition_frequency", "5"}, {"phases", "5"}}));
  EXPECT_LE(by_bound(plan), 1.05);
  std::vector<int> of_phase(5, 0);
  for (const OwnedMatrix& m : plan.matrices) ++of_phase[index(m.phase)];
  for (const int count : of_phase) EXPECT_NEAR(count, 196 / 5, 1);
}

// Experts that a rank has for itself are its own; the dense matrices level
// what is left.
TEST(StorageOwners, LevelWhatFixedExpertsLeave) {
  std::vector<CutTensor> tensors;
  const std::vector<int64_t> stack{6, 32, 32};
  CutTensor experts = storage_tensor("experts", stack, Stored(4));
  // Ranks 0 and 1 have three experts each.
  experts.stored[0] = {{{0, 0, 0}, {3, 32, 32}}};
  experts.stored[1] = {{{3, 0, 0}, {3, 32, 32}}};
  tensors.push_back(experts);
  for (int t = 0; t < 14; ++t)
    tensors.push_back(storage_tensor(cat("dense", t), {32, 32},
                                     stored_by({32, 32}, {{4, 0}})));
  const auto plan = make_storage_plan(storage_request(4, tensors));
  std::vector<int> of_owner(4, 0);
  for (const OwnedMatrix& m : plan.matrices) ++of_owner[index(m.owner)];
  for (const int count : of_owner) EXPECT_EQ(count, 5);
  EXPECT_EQ(plan.summary.makespan, plan.summary.bound);
  for (int32_t e = 0; e < 6; ++e) {
    EXPECT_EQ(plan.matrices[index(e)].owner, e / 3);
    EXPECT_EQ(plan.matrices[index(e)].round, -1);
  }
}

// Sets of holders overlap: a few rows on the first ranks of all.
TEST(StorageOwners, SmallMatricesAreLevelledAmongTheirHolders) {
  std::vector<CutTensor> tensors;
  for (int t = 0; t < 6; ++t)
    tensors.push_back(
        storage_tensor(cat("small", t), {2, 64}, stored_by({2, 64}, {{4, 0}})));
  for (int t = 0; t < 8; ++t)
    tensors.push_back(storage_tensor(cat("large", t), {64, 64},
                                     stored_by({64, 64}, {{4, 0}})));
  const auto plan = make_storage_plan(storage_request(4, tensors));
  EXPECT_LE(by_bound(plan), 1.05);
  std::vector<int> of_owner(4, 0);
  for (size_t m = 0; m < 6; ++m) {
    ++of_owner[index(plan.matrices[m].owner)];
    EXPECT_LT(plan.matrices[m].owner, 2);
  }
  EXPECT_EQ(of_owner[0], 3);
}

// Either of three ranks could own the only matrix; it lies mostly on the last.
TEST(StorageOwners, StoreAsMuchAsTheyCan) {
  CutTensor tensor = storage_tensor("w", {8, 2}, Stored(3));
  tensor.stored[0] = {{{0, 0}, {1, 2}}};
  tensor.stored[1] = {{{1, 0}, {2, 2}}};
  tensor.stored[2] = {{{3, 0}, {5, 2}}};
  const auto plan = make_storage_plan(storage_request(3, {tensor}));
  EXPECT_EQ(plan.matrices[0].owner, 2);
}

// Two large matrices set the makespan; small ones go where there is least work.
TEST(StorageOwners, LevelWhatDoesNotSetTheMakespan) {
  std::vector<CutTensor> tensors;
  for (int t = 0; t < 2; ++t)
    tensors.push_back(storage_tensor(cat("large", t), {64, 64},
                                     stored_by({64, 64}, {{4, 0}})));
  for (int t = 0; t < 8; ++t)
    tensors.push_back(
        storage_tensor(cat("small", t), {4, 4}, stored_by({4, 4}, {{4, 0}})));
  const auto plan = make_storage_plan(storage_request(4, tensors));
  std::vector<int> of_owner(4, 0);
  for (const OwnedMatrix& m : plan.matrices) ++of_owner[index(m.owner)];
  std::sort(of_owner.begin(), of_owner.end());
  EXPECT_EQ(of_owner, (std::vector<int>{1, 1, 4, 4}));
}

TEST(StorageOwners, AreTheSameInEveryRun) {
  Random first(9), second(9);
  for (int trial = 0; trial < 20; ++trial) {
    const auto a = make_storage_plan(random_storage(first, 8, 12));
    const auto b = make_storage_plan(random_storage(second, 8, 12));
    EXPECT_EQ(a.matrices, b.matrices);
    EXPECT_EQ(a.classes, b.classes);
  }
}

}  // namespace
}  // namespace canzona::plan::storage_owners_test

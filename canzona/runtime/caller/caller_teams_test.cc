// Matrices that several ranks share have the bits of whole ones.
#include <gmock/gmock.h>

#include <limits>

#include "canzona/linalg/test_late_engine.h"
#include "canzona/plan/storage/test_storage.h"
#include "canzona/runtime/caller/test_caller.h"

namespace canzona::runtime::caller_teams_test {
namespace {

struct Shared {
  std::string name;
  std::string rule;
  RuleOptions options;
};
std::string PrintToString(const Shared& shared) { return shared.name; }

std::vector<Shared> shared_rules() {
  return {{"muon", "muon", {{"strips", "4"}}},
          {"muon_2", "muon", {{"strips", "2"}, {"precision", "fp32"}}},
          {"soap_strips",
           "soap",
           {{"strips", "4"},
            {"ignored_dims", "1"},
            {"precondition_frequency", "2"}}},
          {"soap_helper", "soap", {{"precondition_frequency", "2"}}},
          {"soap_blocks",
           "soap",
           {{"max_preconditioner_dim", "8"},
            {"long_sides", "cut"},
            {"precondition_frequency", "2"}}},
          {"shampoo_blocks",
           "shampoo",
           {{"max_preconditioner_dim", "8"}, {"precondition_frequency", "2"}}}};
}

struct Layout {
  std::string name;
  MeshAxes axes;
  bool share_states = false;
};
std::vector<Layout> layouts() {
  return {{"fsdp 2", {{0, 2}}},
          {"fsdp 4", {{0, 4}}},
          {"columns 3", {{-1, 3}}},
          {"hsdp 2x2", {{kReplicated, 2}, {0, 2}}},
          {"hsdp 2x4, shared", {{kReplicated, 2}, {0, 4}}, true},
          {"fsdp x tp 2x2", {{0, 2}, {-1, 2}}}};
}

StorageRequest request_on(const Layout& layout, const Shared& shared,
                          DType wire) {
  // Strips are wide.
  const int64_t n = shared.options.contains("strips") ? 264 : 40;
  StorageRequest request = storage_request(shared.rule,
                                           {{"a", {12, n}},
                                            {"norm", {13}},
                                            {"b", {n, 12}},
                                            {"primes", {7, 5}},
                                            {"stack", {2, 16, n}},
                                            {"qkv", {24, n}, {8, 16}},
                                            {"c", {12, n}}},
                                           layout.axes);
  for (const auto& [name, value] : shared.options)
    request.groups[0].options[name] = value;
  request.options.wire = wire;
  request.options.share_states = layout.share_states;
  request.options.capacity_bytes = 256 * n;
  return request;
}

StoragePlan without_phases(StoragePlan plan) {
  for (OwnedMatrix& matrix : plan.matrices) matrix.phase = 0;
  return plan;
}

int64_t num_shared(const StoragePlan& plan) {
  return std::ranges::count_if(
      plan.matrices, [](const OwnedMatrix& m) { return !m.team.empty(); });
}

class SharedMatrices : public testing::TestWithParam<Shared> {};

TEST_P(SharedMatrices, HaveTheBitsOfWholeOnesOnEveryLayout) {
  CallerResult expected;
  for (const Layout& layout : layouts())
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(cat(layout.name, ", seed ", seed));
      StorageRequest request = request_on(layout, GetParam(), DType::kFp32);
      request.options.teams = kTeamsAuto;
      CallerTrial trial{.plan = without_phases(plan_by_lot(request, seed)),
                        .threads = seed == 2 ? 2 : 0};
      EXPECT_GE(num_shared(trial.plan), 3);
      if (expected.values.empty()) expected = reference(trial);
      EXPECT_EQ(difference(run_caller(trial), expected), "");
    }
}

TEST_P(SharedMatrices, HaveOneResultPerWire) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    StorageRequest request = request_on(layout, GetParam(), DType::kBf16);
    CallerTrial trial{.plan = without_phases(plan_by_lot(request, 5))};
    const CallerResult expected = run_caller(trial);
    request.options.teams = kTeamsAuto;
    trial.plan = without_phases(plan_by_lot(request, 5));
    EXPECT_GE(num_shared(trial.plan), 3);
    EXPECT_EQ(difference(run_caller(trial), expected), "");
  }
}

// Tensors without a gradient, steps that are skipped, rare gradients that are
// huge, and a device that is late.
TEST_P(SharedMatrices, KeepTheirBitsInOddSteps) {
  StorageRequest request =
      request_on({"fsdp 4", {{0, 4}}}, GetParam(), DType::kFp32);
  const auto result_with = [&](int32_t teams) {
    request.options.teams = teams;
    CallerTrial trial{.plan = plan_by_lot(request, 9), .steps = 6};
    trial.clip = 1;
    trial.missing = [](int32_t tensor, int64_t step) {
      return (tensor + step) % 3 == 0;
    };
    trial.bad = [](int32_t tensor, int64_t step) -> std::optional<float> {
      if (step == 3 && tensor == 2)
        return std::numeric_limits<float>::infinity();
      if (step == 4 && tensor == 0) return 1e30F;
      return std::nullopt;
    };
    LateDevice device;
    trial.make_engine = [&] { return std::make_unique<LateEngine>(device); };
    return run_caller(trial);
  };
  const CallerResult whole = result_with(kTeamsOff);
  EXPECT_TRUE(whole.outcomes[2].skipped);
  EXPECT_EQ(difference(result_with(kTeamsAuto), whole), "");
}

INSTANTIATE_TEST_SUITE_P(CallerStep, SharedMatrices,
                         testing::ValuesIn(shared_rules()),
                         [](const auto& shared) { return shared.param.name; });

}  // namespace
}  // namespace canzona::runtime::caller_teams_test

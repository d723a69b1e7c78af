#include "canzona/sim/memory_floor.h"

#include <gmock/gmock.h>

#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::memory_floor_test {
namespace {

// No plan of any strategy and sizes is below the floor, and the floor counts
// everything that only depends on the sizes.
void expect_floor(const Model& model, const std::string& mesh_text) {
  const Mesh mesh = parse_mesh(mesh_text);
  const auto rule = make_rule_facts("muon", {});
  const MemoryTerms terms;
  for (const std::string strategy : {"balanced", "megatron"}) {
    const bool is_balanced = strategy == "balanced";
    for (const ZeroSizes& sizes : all_zero_sizes(mesh.homes())) {
      PlanOptions options;
      options.strategy = strategy;
      options.zero.sizes = sizes;
      const PlanRequest request{model, mesh, *rule, options};
      const RankMemory least = least_memory(request, terms);
      const RankMemory most = fullest_memory(
          predict_in_terms(plan_in_terms(request, terms), terms));
      EXPECT_LE(least.total(), most.total())
          << strategy << " " << to_string(sizes) << " on " << mesh_text;
      EXPECT_EQ(least.states, Bytes(0));
      // Every rank stores the tensors that are not cut.
      if (sizes.z2 == 1 && sizes.z3 == 1 && is_balanced) {
        EXPECT_EQ(least.parameters + least.gradients,
                  most.parameters + most.gradients);
      }
    }
  }
}

TEST(LeastMemory, NoPlanNeedsLess) {
  expect_floor(toy_model(1), "dp=4");
  expect_floor(toy_model(2), "dp=2,tp=2,pp=2");
  expect_floor(toy_moe(1), "dp=2,ep=2");
}

}  // namespace
}  // namespace canzona::memory_floor_test

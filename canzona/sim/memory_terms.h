// The terms say what is counted against a cap on memory: what the plan says,
// gradients as they lie at rest, and activations beside it.
//
//   const MemoryTerms terms{.activations = activation_bytes(…)};
//   const Plan plan = plan_in_terms(request, terms);
//   for (const RankCost& rank : predict_in_terms(plan, terms)) …
//
// A plan counts fp32 gradients and knows of no activations; its cap is what
// these terms leave to it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/sim/activations.h"

namespace canzona {

struct MemoryTerms {
  ActivationLoad load = {};  // tokens = 0: activations are not counted
  int64_t activations = 0;   // bytes of a rank, of the stage that has most
  // The type of gradients at rest; sums travel, and wait in pools, in fp32.
  ParameterDtype gradients = ParameterDtype::kFp32;
  int64_t cap_bytes = 0;  // what the sum is compared with; 0: nothing
  friend bool operator==(const MemoryTerms&, const MemoryTerms&) = default;
};

// With activations counted, and the cap of the options. UsageError if they
// alone take all of it.
MemoryTerms memory_terms(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load, ParameterDtype gradients,
                         const PlanOptions& options);

// predict(), with gradients as they lie at rest.
std::vector<RankCost> predict_in_terms(const Plan& plan,
                                       const MemoryTerms& terms);
// The memory of the rank that needs most; activations are beside it.
const RankMemory& fullest_memory(const std::vector<RankCost>& ranks);

// make_plan() under what the terms leave of the request's cap. The plan keeps
// the request's cap, or, where that is below what was left, what was left.
Plan plan_in_terms(const PlanRequest& request, const MemoryTerms& terms);

// "estimated for 4096 tokens of a micro-batch in bf16, …", or why there are
// none.
std::string describe_activations(const MemoryTerms& terms, const Mesh& mesh);

}  // namespace canzona

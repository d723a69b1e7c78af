// MemoryTerms say what counts against a memory cap: the plan's memory,
// gradients in their type at rest, and activations.
//
//   const MemoryTerms terms{.activations = activation_bytes(…)};
//   const Plan plan = plan_in_terms(request, terms);
//   for (const RankCost& rank : predict_in_terms(plan, terms)) …
//
// A plan counts fp32 gradients and knows no activations; its cap is what these
// terms leave for it. All functions are pure.
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
  int64_t activations = 0;   // bytes of a rank, in the stage with the most
  // The type of gradients at rest; sums travel, and wait in pools, in fp32.
  ParameterDtype gradients = ParameterDtype::kFp32;
  int64_t cap_bytes = 0;  // compared with the sum; 0: no cap
  friend bool operator==(const MemoryTerms&, const MemoryTerms&) = default;
};

// Counts activations and uses the cap of the options. Throws UsageError if
// activations alone exceed it.
MemoryTerms memory_terms(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load, ParameterDtype gradients,
                         const PlanOptions& options);

// predict(), with gradients in their type at rest.
std::vector<RankCost> predict_in_terms(const Plan& plan,
                                       const MemoryTerms& terms);
// Returns the memory of the rank that needs most, without activations.
const RankMemory& fullest_memory(const std::vector<RankCost>& ranks);

// make_plan() under what the terms leave of the request's cap. The plan keeps
// the request's cap unless it needs more than that; then it keeps what was
// left, which is more.
Plan plan_in_terms(const PlanRequest& request, const MemoryTerms& terms);

// "estimated for 4096 tokens of a micro-batch in bf16, …", or why there are
// none.
std::string describe_activations(const MemoryTerms& terms, const Mesh& mesh);

}  // namespace canzona

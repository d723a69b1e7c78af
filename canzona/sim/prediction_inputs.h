// What a predicted number stands on: its inputs, and the parts of it that are
// known to be off.
//
//   describe_inputs(plan, work)
//       // "h200: 989 Tflop/s × 0.5 in products and × 0.35 in attention,
//       // stated; links 450 and 50 GB/s nominal; rules at 494.5 Tflop/s, not
//       // measured"
//   for (const std::string& gap : known_gaps(plan, work)) out.note(gap);
//
// Every view of a prediction shows both. All functions are pure.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/workload.h"

namespace canzona::sim {

// What is predicted, and at which rates. It refers to its members.
struct PredictionBasis {
  const Model& model;
  const Mesh& mesh;
  const std::string& rule;
  const CostBasis& cost;
  const Links& links;
  const Workload& work;
};

inline PredictionBasis basis_of(const Plan& plan, const Workload& work) {
  return {plan.model,      plan.mesh,          plan.rule,
          plan.cost_basis, plan.options.links, work};
}

std::string describe_inputs(const PredictionBasis& basis);
inline std::string describe_inputs(const Plan& plan, const Workload& work) {
  return describe_inputs(basis_of(plan, work));
}

// A sentence for each; none where all parts are modelled.
std::vector<std::string> known_gaps(const PredictionBasis& basis);
inline std::vector<std::string> known_gaps(const Plan& plan,
                                           const Workload& work) {
  return known_gaps(basis_of(plan, work));
}

}  // namespace canzona::sim

// Counts what travels in one iteration of a plan, by operation and link class.
//
//   PurposeBytes bytes = zero_bytes(plan, ranks[r], r);
//   of(bytes, Purpose::kGatherModule).sent_inter   // in a micro-batch
//
// Gathers and scatters of modules (plan/zero.h) come with every micro-batch,
// the rest with the step. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/module_bytes.h"

namespace canzona {

// Returns a rank's bytes: gathers of all modules, forward and backward, and
// scatters of one micro-batch; the rest of one step.
PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank);

// The same as rows, in the order in which they come.
struct ZeroOperation {
  const char* name;  // "gather parameters"
  const char* key;   // "gather", as in JSON
  const char* when;  // "micro-batch" or "step"
  std::vector<Purpose> purposes;
  WireBytes of(const PurposeBytes& bytes) const;
};
const std::vector<ZeroOperation>& zero_operations();

// True if a group of z consecutive data-parallel ranks lies in several nodes;
// these are experts' if `part` has them.
bool crosses_nodes(const PlanPart& part, int32_t z);
// True if the groups of this size do so in any part of the plan.
bool crosses_nodes(const Plan& plan, int32_t ZeroSizes::*z);

}  // namespace canzona

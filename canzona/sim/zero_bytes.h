// Counts the bytes that travel in one iteration of a plan, by operation and
// link class.
//
//   PurposeBytes bytes = zero_bytes(plan, ranks[r], r);
//   of(bytes, Purpose::kGatherModule).sent_inter   // in a micro-batch
//
// Gathers and scatters of modules (plan/zero.h) happen in every micro-batch,
// the rest once per step. All functions are pure.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/module_bytes.h"

namespace canzona {

// Returns a rank's bytes: gathers of all modules, forward and backward, and
// scatters, per micro-batch; the rest per step.
PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank);

// The same as rows, in chronological order.
struct ZeroOperation {
  const char* name;  // "gather parameters"
  const char* key;   // "gather", as in JSON
  const char* when;  // "micro-batch" or "step"
  std::vector<Purpose> purposes;
  WireBytes of(const PurposeBytes& bytes) const;
};
const std::vector<ZeroOperation>& zero_operations();

// True if a group of z consecutive data-parallel ranks spans several nodes;
// these are the experts' groups if `part` has experts.
bool crosses_nodes(const PlanPart& part, int32_t z);
// True if the groups of this size do so in any part of the plan.
bool crosses_nodes(const Plan& plan, int32_t ZeroSizes::*z);

}  // namespace canzona

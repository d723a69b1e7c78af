// What travels in one iteration of a plan, by operation and link class.
//
//   ZeroBytes bytes = zero_bytes(plan, ranks[r], r);
//   WireBytes all = bytes.iteration(micro_batches);
//
// Gathers and scatters of modules (plan/zero.h) come with every micro-batch,
// the rest with the step. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/predict/predict.h"

namespace canzona {

void add_bytes(WireBytes& sum, const WireBytes& more, int64_t times = 1);

struct ZeroBytes {
  WireBytes gather;    // parameters of all modules, forward and backward
  WireBytes scatter;   // their gradients
  WireBytes reduce;    // gradients to their homes
  WireBytes replicas;  // and over groups that repeat each other
  WireBytes exchange;  // matrices to owners, and back
  WireBytes publish;   // new parameters

  // Of so many micro-batches and a step.
  WireBytes iteration(int64_t micro_batches) const;
};
ZeroBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank);

// The same as rows, in the order in which they come.
struct ZeroOperation {
  const char* name;  // "gather parameters"
  const char* key;   // "gather", as in JSON
  const char* when;  // "micro-batch" or "step"
  WireBytes ZeroBytes::*bytes;
};
const std::vector<ZeroOperation>& zero_operations();

// Whether a group of z consecutive data-parallel ranks lies in several nodes;
// of experts where `plan` is a part that has them.
bool crosses_nodes(const PlanPart& part, int32_t z);
// The same of a size of the plan; of one in parts, whether any kind's groups
// do.
bool crosses_nodes(const Plan& plan, int32_t ZeroSizes::*z);

// The most that any rank sends and receives in an iteration, each by itself.
WireBytes most_iteration_bytes(const Plan& plan,
                               const std::vector<RankCost>& ranks,
                               int64_t micro_batches);

}  // namespace canzona

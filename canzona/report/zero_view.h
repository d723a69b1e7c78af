// Shows what hierarchical ZeRO (plan/zero.h) does in a plan: sizes, who
// exchanges with whom over which links, pools, and the cost of replicas. Plans
// in parts show dense tensors and experts separately; the experts of all ep
// coordinates are alike. Plans without slices and replicas show nothing.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/schedule/modules.h"
#include "canzona/report/document.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {

// Counts the bytes that travel in one iteration of a plan, by operation and
// link class.
//
//   PurposeBytes bytes = zero_bytes(plan, ranks[r], r);
//   of(bytes, Purpose::kGatherModule).sent_inter   // in a micro-batch
//
// Gathers and scatters of modules (plan/zero.h) happen in every micro-batch,
// the rest once per step. All functions are pure.

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

bool has_zero(const Plan& plan);

// "once per node, on nodes of 8 ranks", or "direct: " and why: the outcome of
// automatic collectives.
std::string collectives_text(const Plan& plan);

// The facts and operations, in JSON the member "zero"; empty if there is
// nothing to show.
Document zero_view(const ReportPlan& shown);
Value sizes_value(const ZeroSizes& sizes);

}  // namespace canzona::report

// Turns the shapes of a model into a plan.
//
//   Model model = read_model("qwen3-32b", {.fused = true});
//   auto rule = make_rule_facts("muon", {});
//   Plan plan = make_plan({.model = model, .mesh = parse_mesh("dp=32,tp=8"),
//                          .rule = *rule, .options = {}});
//
// Deterministic: the same input gives the same plan on any machine. Uses no
// threads, clock, environment or device.
#pragma once

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"

namespace canzona {

struct PlanRequest {
  const Model& model;  // routed
  Mesh mesh;
  const RuleFacts& rule;
  PlanOptions options;
  const CostTable* cost_table = nullptr;
  // If set, points to the same model, which the plan may move from instead of
  // copying.
  Model* may_take = nullptr;
  // The rate that a rule reaches if it has no table.
  double flops_per_second = kNominalFlopsPerSecond;
};

// Returns a plan with its summary and digest. Throws UsageError if the request
// cannot be met. A budget that no plan meets (a memory cap) is reported by
// validate(), not here.
Plan make_plan(const PlanRequest& request);

// A plan before its prefetch is chosen, which is then 0, without summary and
// digest: for searches that make many. If teams are allowed, they are used even
// where they do not pay.
struct PlanDraft {
  Plan plan;
  bool chooses_prefetch = false;
};
PlanDraft draft_plan(const PlanRequest& request);

// The memory, on any rank, of one more usual slot, and of the second large slot
// that comes with the first prefetch.
struct SlotBytes {
  int64_t usual = 0;
  int64_t large = 0;

  // Returns the prefetch for which so many bytes are enough.
  int32_t fit_in(int64_t room, const Model& model) const;
};
SlotBytes slot_bytes(const Plan& plan);

struct StrategyInfo {
  std::string name;
  std::string summary;
  std::string default_micro_groups;
};
std::vector<StrategyInfo> strategies();
std::vector<std::string> micro_group_modes();

}  // namespace canzona

// What a rank computes, in batches of equal shape, and where states lie.
//
//   UpdatePlan updates = plan_updates(plan, kept, rounds, rules, width);
//
// Matrices of a batch share shape, phase and rule; their states at the owner
// lie one after another. States are one run of fp32 elements: AdamW's two, then
// those with the shard, then those with the owner. Made from the plan alone; no
// memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/rounds.h"
#include "canzona/runtime/rule_set.h"

namespace canzona {

// One state of one matrix, or of a batch of them.
struct StatePlace {
  StateFact fact;
  int64_t first = 0;  // element of the states
};

struct UpdateBatch {
  Dims dims;
  int32_t phase = 0;
  int32_t rule = 0;              // number in the rule set
  std::vector<int32_t> members;  // kept matrices
  std::vector<StatePlace> owned;
};

struct UpdatePlan {
  // tp = 1: one list, in the order of the next forward. Else one per round.
  std::vector<std::vector<UpdateBatch>> batches;
  std::vector<std::vector<StatePlace>> with_shard;  // by kept matrix
  int64_t exp_avg = 0;  // AdamW's, of `kept.num_elements` each
  int64_t exp_avg_sq = 0;
  int64_t num_state_elements = 0;
};

// `width`: of a batch, at most.
UpdatePlan plan_updates(const PlanPart& plan, const RankLayout& layout,
                        const Kept& kept, const std::vector<Round>& rounds,
                        const RuleSet& rules, int64_t width);

}  // namespace canzona

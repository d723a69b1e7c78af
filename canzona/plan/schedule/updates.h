// The updates that a rank computes, in batches of equal shape, and the layout
// of their states.
//
//   UpdatePlan updates =
//       plan_updates(part, layout, kept, rounds, rules, width);
//
// The matrices of a batch (or blocks of matrices with separate owners) share
// shape, phase and rule; their states at the owner lie one after another. All
// states form one array of fp32 elements. First come those that fill whole
// cache lines, so that they begin at one, then the others, both in this order:
// AdamW's two, those with the shard, those with the owner. Made from the plan
// alone; no memory is touched.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/plan/schedule/rounds.h"

namespace canzona {

// One state of one matrix, or of a batch of them.
struct KeptState {
  std::shared_ptr<const StateFact> fact;
  int64_t first = 0;   // element of the memory
  int32_t memory = 0;  // its number, where a caller lends several
};

struct UpdateBatch {
  std::vector<int64_t> dims;
  int32_t phase = 0;
  int32_t rule = 0;              // number of the rule
  int32_t segment = 0;           // of the round (SlotMatrix)
  std::vector<int32_t> members;  // kept matrices
  // By member: the number of its block, -1 for a whole matrix, and where the
  // states of a block lie in those of the matrix, in the order of `owned`.
  std::vector<int32_t> blocks;
  std::vector<std::vector<BlockState>> in_matrix;
  std::vector<KeptState> owned;
};

// A matrix, or a block of one, that a rank computes.
struct ComputedMatrix {
  int32_t kept = 0;
  int32_t block = -1;
  int64_t rows = 0, cols = 0;
  int32_t phase = 0;
  int32_t rule = 0;
  int32_t apart = 0;  // matrices of different numbers never share a batch
};

// Returns batches of at most `width` matrices, without states, in the order of
// the first matrix of each. `apart` becomes their segment.
std::vector<UpdateBatch> batches_of(const std::vector<ComputedMatrix>& computed,
                                    int64_t width);

// The states that a rank keeps of a matrix that its team shares, in the order
// of RuleFacts::team_states.
struct SharedStates {
  int32_t kept = 0;  // number of the matrix
  std::vector<KeptState> own;
  std::vector<BlockState> in_matrix;
  std::vector<bool> given;  // by this member
};

struct UpdatePlan {
  // tp = 1: one list, in the order of the next forward. Otherwise one per
  // round.
  std::vector<std::vector<UpdateBatch>> batches;
  // By round and shared matrix of it; empty if the rank is not a member.
  std::vector<std::vector<SharedStates>> shared;
  std::vector<std::vector<KeptState>> with_shard;  // by kept matrix
  int64_t exp_avg = 0;  // AdamW's, `kept.num_elements` each
  int64_t exp_avg_sq = 0;
  int64_t num_state_elements = 0;
};

// The rules of a run, as far as planning needs them.
struct RulesOfTensors {
  std::vector<int32_t> number;          // by tensor
  std::vector<const RuleFacts*> facts;  // by number

  const RuleFacts& of(int32_t tensor) const {
    return *facts[static_cast<size_t>(number[static_cast<size_t>(tensor)])];
  }
};

// A batch has at most `width` matrices.
UpdatePlan plan_updates(const PlanPart& part, const RankLayout& layout,
                        const Kept& kept, const std::vector<Round>& rounds,
                        const RulesOfTensors& rules, int64_t width);

}  // namespace canzona

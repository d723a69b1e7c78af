// Lays out a rank's rounds in its slots, and derives what it sends and
// receives: the areas W, X, S and U of storage_schedule.h. For
// storage_schedule.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/storage/storage_sharing.h"

namespace canzona::plan {

// A schedule while it is being made: what its makers know of plan and rank, and
// what they add to. For the sources of storage_schedule.h; one thread.
class ScheduleDraft {
 public:
  // The plan must outlive the draft.
  ScheduleDraft(const StoragePlan& the_plan, int32_t the_rank, int64_t width);

  const StoragePlan& plan;
  const int32_t rank;
  RankSchedule out;

  const CutTensor& tensor(int32_t t) const { return plan.tensors[index(t)]; }
  const OwnedMatrix& matrix(int32_t m) const { return plan.matrices[index(m)]; }
  const CutTensor& tensor_of(int32_t m) const {
    return tensor(matrix(m).tensor);
  }
  const RuleFacts& facts_of(int32_t t) const {
    return *facts_[index(tensor(t).group)];
  }
  const RuleFacts& facts_of_matrix(int32_t m) const {
    return facts_of(matrix(m).tensor);
  }
  bool is_element_wise(int32_t t) const {
    return !facts_of(t).needs_whole_matrix();
  }

  // Returns the set of replicas of a class that contains a rank, or null.
  static const std::vector<int32_t>* set_of(const ReplicaClass& c,
                                            int32_t rank) {
    for (const std::vector<int32_t>& set : c.replicas)
      if (std::binary_search(set.begin(), set.end(), rank)) return &set;
    return nullptr;
  }
  static int32_t line_of(const ReplicaClass& c, int32_t rank) {
    const std::vector<int32_t>* set = set_of(c, rank);
    if (set == nullptr) return -1;
    return static_cast<int32_t>(std::ranges::lower_bound(*set, rank) -
                                set->begin());
  }

  // Returns the number of a group of ranks, adding it if needed; -1 for a
  // single rank.
  int32_t add_group(const std::vector<int32_t>& ranks);
  // Adds a memory for states and returns its number.
  int32_t add_memory(int64_t elements);
  // Returns the cost of a batch in an ordinary step.
  int64_t work_of(const UpdateBatch& batch);
  // Finds a kept matrix by its number in the plan.
  int32_t kept_of(int32_t m) const;
  // Groups matrices, and blocks of some, by equal shape, phase, group and
  // dtype, with memory for the states that live with owners.
  std::vector<UpdateBatch> batches_of(const std::vector<SlotMatrix>& computed);
  // The states that this rank keeps of a matrix that its team shares.
  SharedStates states_of(const SharedMatrix& team);
  StorageShares& shares() { return shares_; }

 private:
  void find_groups();
  void find_kept();
  void add_owner_states(UpdateBatch& batch);
  ScheduledState owned_state(const StateFact& fact, int32_t matrix,
                             int32_t memory, int64_t at) const;

  const int64_t width_;
  const std::vector<std::unique_ptr<RuleFacts>> facts_;  // by group
  std::map<std::vector<int32_t>, int32_t> group_number_;
  StorageShares shares_;
};

struct BroadcastBlock {
  int32_t root = 0;
  int64_t at = 0, count = 0;
};
// A round of this rank: its groups, and what replicas send each other of it.
struct RoundMoves {
  int32_t line_group = -1, set_group = -1;
  int32_t line_size = 0;
  std::vector<BroadcastBlock> blocks;  // by line, in elements of the slot
  std::vector<int32_t> tensors;
};

// The rounds of all ranks, and this rank's share of them.
struct RankRounds {
  int32_t num_slots = 0;
  std::vector<int32_t>
      position_of_round;          // in the schedule; -1: not this rank's
  std::vector<RoundMoves> moves;  // parallel to the schedule's rounds
};

// Adds this rank's rounds and their slots to the schedule.
RankRounds add_storage_rounds(ScheduleDraft& draft);

}  // namespace canzona::plan

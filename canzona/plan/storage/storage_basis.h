// The facts from which owners and rounds are decided and plans are judged,
// derived from a request that was cut into matrices and classes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_sharing.h"
#include "canzona/plan/storage/stored_pieces.h"
#include "canzona/plan/predict/predict.h"

namespace canzona::plan {

// The cost of a matrix in each kind of step. Groups of tensors may have rules
// with different periods.

// How often the rule of a group refreshes its states; see RuleFacts.
struct GroupPeriod {
  int32_t period = 1;
  int32_t phases = 1;
  friend bool operator==(const GroupPeriod&, const GroupPeriod&) = default;
};

// The steps of the common period of all groups, by kind: steps are of one kind
// if they refresh the same phases of the same groups. If the common period or
// the number of kinds would be too large, refreshes are spread evenly over all
// steps, and there is one kind.
class StepKinds {
 public:
  // Periods by group; element-wise groups have a period of 1.
  explicit StepKinds(std::vector<GroupPeriod> groups);

  // The number of steps of each kind in a period.
  const std::vector<int64_t>& steps() const { return steps_; }
  int64_t period() const { return period_; }
  // Returns a matrix's load in a step of each kind.
  std::vector<int64_t> load(const MatrixCost& cost, int32_t group,
                            int32_t phase) const;
  // Returns a matrix's load over a period.
  int64_t period_load(const MatrixCost& cost, int32_t group,
                      int32_t phase) const;

 private:
  bool walk_steps();

  std::vector<GroupPeriod> groups_;
  bool alike_ = false;     // all groups that refresh do so alike
  bool averaged_ = false;  // no common period
  int64_t period_ = 1;
  std::vector<int64_t> steps_;
  std::vector<std::vector<int32_t>> kinds_;  // by kind and group: phase, or -1
};

// Returns the step kinds for the rules that have tensors.
StepKinds step_kinds(const StorageRequest& request);

// Who computes: the owners that a plan has, or the first of each matrix alone.
enum class Computing { kAsPlanned, kFirstOwners };

// Returns the load of every rank, by kind of step.
std::vector<std::vector<int64_t>> storage_loads(
    const StoragePlan& plan, const StepKinds& kinds,
    Computing who = Computing::kAsPlanned);

// Returns the sum over a period of the largest load, or the longest path of a
// team, in each step.
Ticks storage_makespan(const StoragePlan& plan, const StepKinds& kinds,
                       Computing who = Computing::kAsPlanned);

// For each rank, the number of its line and of its set of replicas in a class;
// -1 if it stores nothing of the class.
struct RanksOfClass {
  std::vector<int32_t> line;
  std::vector<int32_t> set;
};

// The decisions of `plan` may change while the basis exists; everything else in
// it must not, and the plan must outlive the basis.
class StorageBasis {
 public:
  explicit StorageBasis(const StoragePlan& plan);

  // Items are matrices, then shared element-wise tensors.
  const HolderLists& holders() const { return holders_; }
  const StepKinds& kinds() const { return kinds_; }

  bool is_matrix(size_t item) const { return item < plan_.matrices.size(); }
  const SharedElements& elements(size_t item) const {
    return plan_.elements[item - plan_.matrices.size()];
  }
  int32_t tensor_of(size_t item) const {
    return is_matrix(item) ? plan_.matrices[item].tensor
                           : elements(item).tensor;
  }
  int32_t class_of(size_t item) const {
    return plan_.class_of[static_cast<size_t>(tensor_of(item))];
  }
  int32_t round_of(size_t item) const {
    return is_matrix(item) ? plan_.matrices[item].round : elements(item).round;
  }
  const RanksOfClass& ranks_of(int32_t number) const {
    return ranks_[static_cast<size_t>(number)];
  }
  // Returns a matrix's load over a period.
  int64_t work_of(size_t matrix) const;
  // Returns the owner, or the first rank of the line that keeps shared states.
  int32_t owner_of(size_t item) const;
  // Returns all ranks that compute a part of it.
  std::vector<int32_t> owners_of(size_t item) const;
  // Returns the line in which an item is computed.
  int32_t line_of(size_t item) const;

  // Calls visit(collective, from, to, bytes) for every message sent for an item
  // in one step.
  template <class Visit>
  void each_message(size_t item, Visit visit) const;

 private:
  // One message of a shared matrix: from a rank of the line to an owner, or
  // between members of a team.
  struct Moved {
    int32_t from = 0, to = 0;
    int64_t elements = 0;  // gathered, and their updates scattered
    int64_t bytes = 0;     // between members of a team, in this collective
    Collective collective = Collective::kTeamSums;
  };
  std::vector<Moved> moved_of(size_t matrix) const;
  void add_team_bytes(size_t matrix, std::vector<Moved>& out) const;

  const StoragePlan& plan_;
  std::vector<std::shared_ptr<const StoredPieces>> pieces_;
  HolderLists holders_;
  StepKinds kinds_;
  mutable StorageShares shares_;
  std::vector<int64_t> fields_;      // by group
  std::vector<RanksOfClass> ranks_;  // by class
};

template <class Visit>
void StorageBasis::each_message(size_t item, Visit visit) const {
  const auto at = [](const auto& list, int32_t i) -> auto& {
    return list[static_cast<size_t>(i)];
  };
  const RanksOfClass& ranks = ranks_of(class_of(item));
  const ReplicaClass& c = at(plan_.classes, class_of(item));
  const int32_t line = line_of(item), owner = owner_of(item);
  const int64_t fields = at(fields_, at(plan_.tensors, tensor_of(item)).group);
  // Weights of element-wise tensors are never rounded in transit.
  const int64_t wire =
      is_matrix(item) ? size_of(plan_.options.wire) : kBytesPerFp32;
  const bool is_shared = is_matrix(item) && !plan_.matrices[item].team.empty();
  if (is_shared)
    for (const auto& [from, to, elements, bytes, team] : moved_of(item)) {
      if (bytes > 0) visit(team, from, to, bytes);
      if (elements == 0) continue;
      visit(Collective::kGather, from, to, elements * wire * fields);
      visit(Collective::kScatter, to, from, elements * wire);
    }
  for (const Holder& holder : holders_[item]) {
    if (at(ranks.line, holder.rank) != line) continue;
    const int64_t bytes = holder.elements * wire;
    if (is_matrix(item) && !is_shared && holder.rank != owner) {
      visit(Collective::kGather, holder.rank, owner, bytes * fields);
      visit(Collective::kScatter, owner, holder.rank, bytes);
    }
    for (const int32_t other : at(c.replicas, at(ranks.set, holder.rank)))
      if (other != holder.rank)
        visit(Collective::kBroadcast, holder.rank, other, bytes);
  }
}

// The figures by which plans for a given storage layout are judged.

// Returns what each rank sends and receives in one step (RankCost::wire); the
// other costs are not filled in. A broadcast is counted as its root's messages
// to every other rank of the set.
std::vector<RankCost> storage_wire(const StorageBasis& basis,
                                   const StoragePlan& plan);

LoadSummary summarize_storage(const StorageBasis& basis,
                              const StoragePlan& plan);

}  // namespace canzona::plan

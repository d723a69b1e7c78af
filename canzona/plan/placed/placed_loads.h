// A matrix has a cost in each kind of step; groups of tensors may have rules
// with different periods.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// When the rule of a group refreshes what it keeps; see RuleFacts.
struct GroupPeriod {
  int32_t period = 1;
  int32_t phases = 1;
  friend bool operator==(const GroupPeriod&, const GroupPeriod&) = default;
};

// The steps of a period that all groups have in common, by kind: steps in which
// the same phases of the same groups are refreshed are of one kind. Where that
// period or the kinds would be too many, refreshes count as if every step did
// an equal part of them, and there is one kind.
class StepKinds {
 public:
  // By group; element-wise groups have a period of 1.
  explicit StepKinds(std::vector<GroupPeriod> groups);

  // Steps of a period by kind.
  const std::vector<int64_t>& steps() const { return steps_; }
  int64_t period() const { return period_; }
  // A matrix's load in a step of each kind.
  std::vector<int64_t> load(const MatrixCost& cost, int32_t group,
                            int32_t phase) const;
  // Over a period.
  int64_t period_load(const MatrixCost& cost, int32_t group,
                      int32_t phase) const;

 private:
  bool walk_steps();

  std::vector<GroupPeriod> groups_;
  bool alike_ = false;     // all groups that refresh are alike
  bool averaged_ = false;  // no common period
  int64_t period_ = 1;
  std::vector<int64_t> steps_;
  std::vector<std::vector<int32_t>> kinds_;  // by kind and group: phase, or -1
};

// The periods of the rules that have tensors.
StepKinds step_kinds(const PlacedRequest& request);

// The loads of every rank, by kind of step.
std::vector<std::vector<int64_t>> placed_loads(const PlacedPlan& plan,
                                               const StepKinds& kinds);

// Over a period: the sum of the largest load of each step.
Ticks placed_makespan(const std::vector<std::vector<int64_t>>& loads,
                      const StepKinds& kinds);

}  // namespace canzona

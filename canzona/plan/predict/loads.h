// Loads of a plan: what each rank computes, in ticks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/plan/plan.h"
#include "canzona/rules/facts.h"

namespace canzona::plan {

// Bytes of a rule's states for one matrix, by where they live.
struct StateBytes {
  int64_t with_shard = 0;  // of the whole matrix; split over tp if it is cut
  int64_t with_owner = 0;
};

// Asks the rule once per shape. The rule must outlive the table.
class StateBytesTable {
 public:
  explicit StateBytesTable(const RuleFacts& rule) : rule_(rule) {}

  const StateBytes& of(MatrixShape shape);

 private:
  const RuleFacts& rule_;
  std::map<MatrixShape, StateBytes> known_;
};

// Calls visit(stage, home of the stage) for every home that keeps a tensor's
// states. Updates that every home repeats (kEveryHome) are counted only at the
// first home of each ep coordinate; share_repeated() copies them to the others.
template <class Visit>
void each_home(const PlanPart& part, int32_t tensor, Visit visit) {
  const Buffer& buffer = part.buffer_of(tensor);
  const int32_t home = part.home[static_cast<size_t>(tensor)];
  if (home != kEveryHome) {
    visit(buffer.stage, part.stage_home(buffer, home));
    return;
  }
  for (int32_t e = 0; e < part.grid.ep; ++e) {
    if (buffer.ep < 0 || buffer.ep == e) {
      visit(buffer.stage, part.grid.home_of_expert(0, e));
    }
  }
}

// Calls visit(rank of the world) once for every rank of those homes that
// computes all or part of matrix `m`, in the order in which owners are first
// named.
template <class Visit>
void each_computing_rank(const PlanPart& part, size_t m, Visit visit) {
  const std::vector<int32_t> owners = distinct(part.owners[m]);
  each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
    for (int32_t t = 0; owners.empty() && t < part.grid.tp; ++t) {
      visit(part.grid.rank(stage, home, t));
    }
    for (int32_t t : owners) visit(part.grid.rank(stage, home, t));
  });
}

// Returns the rank in the first home of the same ep coordinate, where the
// updates that `rank` repeats were counted.
int32_t counted_rank(const Mesh& mesh, int32_t rank);

// Steps of a period by kind: [ordinary, refresh of phase 0, …].
std::vector<int64_t> steps_of(int32_t period, int32_t phases);

// A matrix's load in each kind of step.
std::vector<int64_t> load_by_step(const MatrixCost& cost, int32_t phase,
                                  int32_t period, int32_t phases);

// Returns a lower bound on the makespan of any plan for these matrices and this
// mesh. `upper` is a makespan that is achieved.
Ticks makespan_bound(const PlanPart& part, Ticks upper);
Ticks makespan_bound(const Plan& plan, Ticks upper);

}  // namespace canzona::plan

// The teams of a part of a plan and what they cost its ranks.
//
//   TeamTable teams(part);
//   const TeamSize& team = teams.of(m);   // a whole matrix is a team of one
//   team_ticks(team, member);             // of an ordinary step
//
// Costs nothing to make where the part has no teams. Not for several threads.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "canzona/plan/cost/team_cost.h"
#include "canzona/plan/plan.h"

namespace canzona {

class TeamTable {
 public:
  explicit TeamTable(const PlanPart& part) : part_(part) {}

  // How many ranks share a matrix; 1 where one owns it or all repeat it.
  int32_t size(size_t matrix) const {
    const auto owners = std::ssize(part_.owners[matrix]);
    return owners > 1 ? static_cast<int32_t>(owners) : 1;
  }
  TeamSize of(size_t matrix);
  const StripFacts& strips(size_t matrix);
  // Requires a matrix with strips.
  StripTicks strip_ticks(size_t matrix) {
    return costs().strip_ticks(shape(matrix), part_.costs[matrix]);
  }
  // The elements that a member puts together.
  Rectangle rectangle(size_t matrix, int32_t member);

 private:
  TeamCosts& costs();
  MatrixShape shape(size_t matrix) const {
    return {part_.matrices[matrix].rows, part_.matrices[matrix].cols};
  }

  const PlanPart& part_;
  std::unique_ptr<RuleFacts> rule_;
  std::unique_ptr<TeamCosts> costs_;
  std::map<std::pair<MatrixShape, int32_t>, TeamSize> known_;
};

// Work of a member in an ordinary step; member 0 is the head.
inline int64_t team_ticks(const TeamSize& team, int32_t member) {
  return member == 0 ? team.at_head() : team.member;
}

}  // namespace canzona

// Matrices of a part of a plan that several ranks share, and what they cost
// them: in teams, whose members have strips, or by blocks with owners of their
// own.
//
//   TeamTable teams(part);
//   for (const MatrixShare& share : teams.shares(m)) …
//   const TeamSize& team = teams.of(m);   // a whole matrix is a team of one
//   team_ticks(team, member);             // of an ordinary step
//
// Costs nothing to make where the part shares nothing. Not for several threads.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "canzona/plan/cost/matrix_blocks.h"
#include "canzona/plan/cost/team_cost.h"
#include "canzona/plan/plan.h"

namespace canzona {

// What one rank of a home computes of a matrix.
struct MatrixShare {
  int32_t t = 0;
  MatrixCost cost;
  std::vector<Rectangle> rectangles;  // of the matrix, that it puts together
  std::vector<int32_t> blocks;        // their numbers, if these have owners

  int64_t elements() const;
};

// The parts of those who own blocks of a matrix, in the order in which
// `owners`, one for each block, first names them.
std::vector<MatrixShare> shares_of_blocks(const MatrixBlocks& blocks,
                                          const MatrixCost& whole,
                                          std::span<const int32_t> owners);

class TeamTable {
 public:
  explicit TeamTable(const PlanPart& part) : part_(part) {}

  // True if several ranks compute parts of a matrix, each its own.
  bool is_shared(size_t matrix) const {
    return part_.owners[matrix].size() > 1;
  }
  // Which of the two: its blocks have owners, or a team has its strips.
  bool is_in_blocks(size_t matrix);
  bool is_team(size_t matrix) {
    return is_shared(matrix) && !is_in_blocks(matrix);
  }
  // The parts of those who own a matrix, in the order of the plan's list, a
  // team's head first; a rank that owns several blocks is where its first is.
  // Nothing of a matrix that every rank repeats.
  std::vector<MatrixShare> shares(size_t matrix);

  // How many ranks are in a matrix's team; 1 where it has none.
  int32_t size(size_t matrix) {
    return is_team(matrix) ? static_cast<int32_t>(part_.owners[matrix].size())
                           : 1;
  }
  TeamSize of(size_t matrix);
  const StripFacts& strips(size_t matrix);
  // Requires a matrix with strips.
  StripTicks strip_ticks(size_t matrix) {
    return costs().strip_ticks(shape(matrix), part_.costs[matrix]);
  }
  const MatrixBlocks& blocks(size_t matrix);
  // The elements that a member of a team puts together.
  Rectangle rectangle(size_t matrix, int32_t member);
  // The cost of a block, or of all of it if `block` is negative.
  MatrixCost cost(size_t matrix, int32_t block);
  TeamCosts& costs();

 private:
  const RuleFacts& rule();
  MatrixShape shape(size_t matrix) const {
    return {part_.matrices[matrix].rows, part_.matrices[matrix].cols};
  }

  const PlanPart& part_;
  std::unique_ptr<RuleFacts> rule_;
  std::unique_ptr<TeamCosts> costs_;
  std::map<std::pair<MatrixShape, int32_t>, TeamSize> known_;
  std::map<MatrixShape, MatrixBlocks> blocks_;
};

// True if a team shares a matrix of the part.
bool has_strips_shared(const PlanPart& part);

// Work of a member in an ordinary step; member 0 is the head.
inline int64_t team_ticks(const TeamSize& team, int32_t member) {
  return member == 0 ? team.at_head() : team.member;
}

}  // namespace canzona

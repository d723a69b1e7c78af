// The answers of `canzona explain`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/report/document.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {

// Explains why a matrix has its owner: the strategy's own reason, and what the
// next best rank would have cost.

// Loads are in ticks over a period.
struct OwnerStory {
  std::vector<int32_t> owners;  // world ranks; helpers come last
  size_t num_helpers = 0;       // among them, of an owner
  bool is_team = false;         // the owners share the update
  bool has_blocks = false;      // every block has one of the owners
  int32_t head = -1;            // of a team; else the first owner
  bool repeated = false;        // every owner computes the whole update
  double load_with = 0;         // of the (first) owner, as planned
  double load_without = 0;      // the same without this matrix
  double mean = 0;              // over all ranks of the world
  double makespan = 0;
  double bound = 0;
  int32_t other_rank = -1;  // the least loaded rank that could own it instead
  double other_load = 0;    // of that rank, with this matrix
  std::vector<std::string> reasons;  // sentences
};

OwnerStory tell_owner(const ReportPlan& shown, int32_t matrix);

// Lists what moves for one matrix in one step: routes with ranks and bytes.
// Matrices are numbered as in the whole plan; ranks are world ranks.
//
//   Moves moves = moves_of(plan, matrix);
//   for (const MovedPiece& piece : moves.pieces) …

// A rectangle of the matrix, on the rank that stores it.
struct MovedPiece {
  int32_t rank = 0;
  Route route;
  Bytes gather;     // to one owner; zero if the owner stores it
  Bytes scatter;    // back
  int32_t to = -1;  // the team member that receives it
};

struct Moves {
  std::vector<MovedPiece> pieces;  // of the owner's home
  Bytes gather;                    // sum over pieces
  Bytes scatter;
  std::string algorithm;  // the one the rule runs on this shape
};

Moves moves_of(const Plan& plan, int32_t matrix);

Document moves_view(const Plan& plan, int32_t matrix);

// Explains one matrix or one rank of a plan: why it has its owner, and what
// moves.
//
//   Document one = explain_matrices(shown, find_by_name(plan, name));
//   Document two = explain_rank(shown, 139);
//
// Text and JSON say the same; JSON leaves nothing out. Numbers were checked by
// the caller (shown_plan.h). Buckets are counted over all parts of a plan
// (shown_plan.h), matrices and ranks are those of the whole.

Document explain_matrices(const ReportPlan& shown, const Found& found);
// The plan must outlive the document.
Document explain_rank(const ReportPlan& shown, int32_t rank);

// A table of what a rank does in an iteration, in order.
Value iteration_table(const Plan& plan, int32_t rank);

}  // namespace canzona::report

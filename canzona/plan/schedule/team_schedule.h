// The members of a team: their shares of a matrix, their exchanges, and the
// order of their work.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/rounds.h"

namespace canzona {

// The matrices of a part that several ranks share, and what they cost each
// rank: in teams, whose members have strips, or by blocks with separate owners.
//
//   TeamTable teams(part);
//   for (const MatrixShare& share : teams.shares(m)) …
//   const TeamSize& team = teams.of(m);   // a whole matrix is a team of one
//   team_ticks(team, member);             // of an ordinary step
//
// Free of cost if the part shares nothing. Not thread-safe.

// The part of a matrix that one rank computes: `t` is as the owners say, a
// plane of the home or a rank.
struct MatrixShare {
  int32_t t = 0;
  MatrixCost cost;
  std::vector<Rectangle> rectangles;  // of the matrix, that it assembles
  std::vector<int32_t> blocks;        // their numbers, if blocks have owners

  int64_t elements() const;
};

// Returns the shares of a matrix's block owners, in the order in which
// `owners`, one entry per block, first names them.
std::vector<MatrixShare> shares_of_blocks(const MatrixBlocks& blocks,
                                          const MatrixCost& whole,
                                          std::span<const int32_t> owners);

// How a rule's matrices are shared, and what that costs, from shapes and lists
// of owners alone. The cost basis and the links must outlive it.
class MatrixSharing {
 public:
  MatrixSharing(std::unique_ptr<RuleFacts> rule, const CostBasis& basis,
                const Links& links)
      : rule_(std::move(rule)), costs_(*rule_, basis, links) {}

  // Return the shares of a matrix's owners in the plan's order, a team's head
  // first; a rank that owns several blocks is at the position of its first.
  std::vector<MatrixShare> shares(MatrixShape shape, const MatrixCost& cost,
                                  std::span<const int32_t> owners);
  // True if several owners have blocks, and not strips of a team.
  bool is_in_blocks(MatrixShape shape, std::span<const int32_t> owners) {
    return owners.size() > 1 && blocks(shape).fall_apart();
  }
  // Returns the size of the team; 1 if there is none.
  int32_t team_size(MatrixShape shape, std::span<const int32_t> owners) {
    return owners.size() > 1 && !is_in_blocks(shape, owners)
               ? static_cast<int32_t>(owners.size())
               : 1;
  }
  // Returns the elements that a member of a team assembles.
  Rectangle rectangle(MatrixShape shape, int32_t size, int32_t member);
  const MatrixBlocks& blocks(MatrixShape shape);
  TeamSize team(MatrixShape shape, const MatrixCost& cost, int32_t size);
  TeamCosts& costs() { return costs_; }
  const RuleFacts& rule() const { return *rule_; }

 private:
  const std::unique_ptr<RuleFacts> rule_;
  TeamCosts costs_;
  std::map<std::pair<MatrixShape, int32_t>, TeamSize> known_;
  std::map<MatrixShape, MatrixBlocks> blocks_;
};

class ShareTable {
 public:
  virtual ~ShareTable() = default;

  // True if several ranks each compute a part of a matrix.
  bool is_shared(size_t matrix) const { return owners(matrix).size() > 1; }
  // Distinguish the two: blocks with owners, or strips of a team.
  bool is_in_blocks(size_t matrix) {
    return is_shared(matrix) &&
           sharing(matrix).is_in_blocks(shape(matrix), owners(matrix));
  }
  bool is_team(size_t matrix) {
    return is_shared(matrix) && !is_in_blocks(matrix);
  }
  // As MatrixSharing has them; empty if every rank repeats the update.
  std::vector<MatrixShare> shares(size_t matrix);

  // Returns the size of a matrix's team; 1 if it has none.
  int32_t size(size_t matrix) {
    return is_team(matrix) ? static_cast<int32_t>(owners(matrix).size()) : 1;
  }
  // The cost in an ordinary step, what a refresh adds, and over a period.
  TeamSize of(size_t matrix);
  TeamSize refresh(size_t matrix) {
    return sharing(matrix).costs().refresh(shape(matrix), whole_cost(matrix),
                                           size(matrix));
  }
  TeamSize over_period(size_t matrix) {
    return sharing(matrix).costs().over_period(
        shape(matrix), whole_cost(matrix), size(matrix));
  }
  const StripFacts& strips(size_t matrix) {
    return sharing(matrix).costs().strips(shape(matrix));
  }
  const MatrixBlocks& blocks(size_t matrix) {
    return sharing(matrix).blocks(shape(matrix));
  }
  // Returns the elements that a member of a team assembles.
  Rectangle rectangle(size_t matrix, int32_t member) {
    return sharing(matrix).rectangle(shape(matrix), size(matrix), member);
  }
  // Returns the cost of a block, or of the whole matrix if `block` is negative.
  MatrixCost cost(size_t matrix, int32_t block) {
    return block < 0 ? whole_cost(matrix)
                     : blocks(matrix).cost(whole_cost(matrix), block);
  }
  // The team of a matrix as the rank at plane `self` of its home sees it;
  // `planes` are those of its members.
  SharedMatrix shared_matrix(size_t matrix, std::vector<int32_t> planes,
                             int32_t self);

 protected:
  virtual MatrixSharing& sharing(size_t matrix) = 0;
  virtual MatrixShape shape(size_t matrix) const = 0;
  virtual std::span<const int32_t> owners(size_t matrix) const = 0;
  virtual const MatrixCost& whole_cost(size_t matrix) const = 0;
  virtual int32_t phase(size_t matrix) const = 0;
};

class TeamTable : public ShareTable {
 public:
  explicit TeamTable(const PlanPart& part) : part_(part) {}

 private:
  MatrixSharing& sharing(size_t matrix) override;
  MatrixShape shape(size_t matrix) const override {
    return shape_of(part_.matrices[matrix]);
  }
  std::span<const int32_t> owners(size_t matrix) const override {
    return part_.owners[matrix];
  }
  const MatrixCost& whole_cost(size_t matrix) const override {
    return part_.costs[matrix];
  }
  int32_t phase(size_t matrix) const override { return part_.phase[matrix]; }

  const PlanPart& part_;
  std::unique_ptr<MatrixSharing> sharing_;
};

// True if a team shares some matrix of the part.
bool has_strips_shared(const PlanPart& part);

// Returns the work of a member in an ordinary step; member 0 is the head.
inline int64_t team_ticks(const TeamSize& team, int32_t member) {
  return member == 0 ? team.at_head() : team.member;
}

// The strips of the members of a team: the i-th of k members has the i-th S/k
// strips of the long side (canzona/rules/strips.h), and all of the other side.
//
//   const Rectangle own = strips_of_member({5120, 51200}, 8, 4, 1);
//   const std::vector<int64_t> from = elements_within(part, matrix, own);
//
// Pure; any thread.

// True if a team shares some matrix.
bool has_teams(const PlanPart& part);
bool has_teams(const Plan& plan);

Rectangle strips_of_member(MatrixShape shape, int strips, int32_t size,
                           int32_t member);
// Returns what a member of a team assembles: its strips, or, where there is a
// helper, the owner everything and the helper nothing.
Rectangle assembled_by(MatrixShape shape, const StripFacts& facts, int32_t size,
                       int32_t member);

// Returns the intersection.
Rectangle meet(const Rectangle& a, const Rectangle& b);

// Returns the elements of a matrix inside `within` that each plane of the home
// stores, [t]. The rectangles must not overlap.
std::vector<int64_t> elements_within(const PlanPart& part, int32_t matrix,
                                     std::span<const Rectangle> within);
inline std::vector<int64_t> elements_within(const PlanPart& part,
                                            int32_t matrix,
                                            const Rectangle& within) {
  return elements_within(part, matrix, std::span(&within, 1));
}

// Returns a number for every rank of the grid. Ranks of a home have the same
// number if they are on one node in every replica, so that they may form a
// team.
std::vector<int32_t> nodes_for_teams(const PlanPart& part);

// team_exchange() says what the members of a team exchange of a matrix that
// they share, and where it lies in each one's room for it. All of it goes over
// the home's ranks, most of which have nothing to send:
//
//   norms    every member's parts of the norm, to all
//   sums     the i-th even piece of every member's sum, to member i
//   totals   that piece, added and rounded, to the head
//   factors  the head's factor, an even piece to each of the others
//   passes   these pieces, from each of them to the others
//
// Where the team is an owner and its helper, these are
//
//   sums     the triangle of the helper's factor, to the helper
//   factors  what the helper finds, to the owner
//
// Norms are exchanged twice per step, because strips are reloaded if their
// squares overflow or underflow; the others in every segment. Made from the
// plan alone; no memory is touched.

// Byte offsets from the beginning of the room; multiples of 64.
struct TeamRoom {
  int64_t own_norms = 0, norms = 0;
  int64_t sums = 0, pieces = 0;      // of the sum: this member's, from all;
                                     // where there is a helper: the owner's,
                                     // the helper's
  int64_t own_total = 0, total = 0;  // rounded; the latter at the head
  int64_t passed = 0, factor = 0;    // the piece that arrived first, and the
                                     // whole
  int64_t strips = 0;                // this member's, fp32
  int64_t bytes = 0;
};
TeamRoom team_room(const SharedMatrix& shared);

// One of these exchanges on one rank, over the planes of the home; source and
// target are extents of the room.
ExchangeTable team_exchange(const SharedMatrix& shared, int32_t num_planes,
                            Purpose purpose);
// True if this rank takes part in a stage of the team.
bool takes_part(const SharedMatrix& shared, EntryKind stage);
// True if members exchange anything for this purpose; `with_factors` says
// whether this step has factors. The same on all ranks of the home.
bool is_exchanged(const StripFacts& facts, Purpose purpose, bool with_factors);

// True if a stage of a team does nothing on a member in any step, though it is
// in the list below: an exchange that never happens, strips that are not
// scaled, or a helper that loads nothing. `elements` are those it works on.
bool is_idle(const StripFacts& facts, EntryKind stage, Purpose purpose,
             int64_t elements);

// The stages of a home's ranks in a round between gather and scatter: the same
// list on all of them, whether or not they take part in a stage.
//
//   for (const TransformStage& stage : transform_order(segments)) …
//
// Pure; any thread.

struct TransformStage {
  EntryKind kind;  // kTransform, a stage of a team, or its exchange
  Purpose purpose = Purpose::kNone;  // of the exchange
  int32_t shared = -1;  // number of the matrix that a team shares; -1: none
  int32_t segment = 0;
};

// `segments` has the segments of each matrix of the round that a team shares.
std::vector<TransformStage> transform_order(std::span<const int32_t> segments);

// Returns the largest entry; 1 if there are none.
int32_t num_segments(std::span<const int32_t> segments);

// Returns the segment in which a rank computes each of its own matrices, given
// their work in order. Segments get about equal work, earlier ones rather more,
// because work in the last segment delays the team's updates.
std::vector<int32_t> spread_over_segments(std::span<const int64_t> work,
                                          int32_t segments);

}  // namespace canzona

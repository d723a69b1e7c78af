// The schedule of one rank for a step on a given storage layout
// (storage_plan.h): its actions in order, and where everything lies. It is made
// from the plan alone, before any memory is touched.
//
//   const RankSchedule schedule = make_storage_schedule(plan, rank, width);
//   for (const ScheduleEntry& entry : schedule.actions) …
//
// *Rounds.* The rounds of all classes have one global order, class by class; a
// rank takes part in the rounds of the classes whose lines it is in. In each
// round it works in one slot, whose areas are, in elements of the wire,
//
//   W  fields of the matrices that it owns, by the rank of its line that sends
//      them; its own pieces last
//   X  updates of those pieces by receiver; shares the memory of W if all
//      matrices have one field
//   S  fields of its own pieces of other ranks' matrices, by owner
//   U  updates of its pieces: those from its own line by owner, its own last,
//      in the place of S; then those from each other line
//
// The fields of a piece follow each other. The gather moves S to the owners' W,
// the scatter moves X to U; both are one all-to-all over the line that excludes
// data which stays on its rank (a split of 0). If tensors have replicas, each
// rank of a set then broadcasts over the set what its own line owns: one block
// of U per line.
//
// *Order.* gather(k+2), gather(k+1) ‖ transform(k) ‖ scatter(k−1), as in the
// runtime's own steps (schedule/entries.h). Updates for replicas are
// broadcast one transform after they were scattered, which needs one more slot.
// Elements and matrices whose pieces never move are updated while the first
// round is gathered. All ranks follow one global list, of which each executes
// its part, so ranks that issue in this order cannot deadlock.
//
// *Teams.* Between gather and scatter, ranks of a line that share a matrix take
// the stages of schedule/team_schedule.h. What they exchange lies in rooms, a
// memory of its own; every round uses the same one.
//
// *Shared states.* With share_states, matrix states that live with the shard
// are kept by the owner's line only, unless applying an update needs them. An
// element-wise tensor with replicas has a line and a round: ranks of that line
// update it and broadcast its new weights, in fp32, at the end of their block.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/ranges.h"
#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/updates.h"

namespace canzona::plan {

// Areas and blocks of weights begin at multiples of this, so that their
// contents are aligned for vector units with any wire dtype.
inline constexpr int64_t kElementAlignment = 64;
inline int64_t aligned_elements(int64_t elements) {
  return (elements + kElementAlignment - 1) / kElementAlignment *
         kElementAlignment;
}

// Returns what a rank stores of a matrix, sorted by first row and column. All
// offsets of a piece are elements of the rank's storage of the tensor. `matrix`
// is numbered as in the plan.
std::vector<Piece> storage_pieces(const StoragePlan& plan, int32_t matrix,
                                  int32_t rank);
// Returns the number of elements that a rank stores of a tensor.
int64_t stored_elements(const StoragePlan& plan, int32_t tensor, int32_t rank);
// A state in memory that the caller provides, as fp32.
struct ScheduledState {
  std::string name;
  int32_t tensor = 0;
  int32_t matrix = -1;         // of the plan; -1: laid out like the weights
  std::vector<int64_t> shape;  // of the rank's box; flat if there are several
  Initially initially = Initially::kZero;
  int32_t memory = 0;  // number of the memory that holds it
  int64_t at = 0;      // element of that memory
  // The elements that are kept up to date here, as extents of the rank's
  // storage: all of them unless states are shared.
  std::vector<Extent> kept = {};
  // If several ranks have parts of the matrix's state: where this part lies,
  // and whether this rank provides it. An empty shape: all of it.
  BlockState in_matrix = {};
  bool is_given = true;

  int64_t elements() const;
};

// Returns what the caller does for an entry: "compute", "all_to_all",
// "broadcast", "exchange" or "wait".
std::string_view kind_text(const ScheduleEntry& entry);

struct RankSchedule {
  int32_t rank = 0;
  // The groups of ranks that entries refer to (ScheduleEntry::ranks_of): the
  // same list on every rank, each group with two or more ascending ranks.
  std::vector<std::vector<int32_t>> groups;
  // The entries of a step in order, with waits between them. Their rounds are
  // indices into `rounds`.
  std::vector<ScheduleEntry> actions;

  std::vector<int64_t> memories;                // elements of each
  std::vector<ScheduledState> states;           // by tensor, then by matrix
  std::vector<std::vector<int32_t>> states_of;  // with the shard, by tensor

  // The matrices of which this rank stores pieces, or which it computes, in the
  // plan's order.
  std::vector<KeptMatrix> kept;

  int64_t slot_elements = 0;  // of the wire, all slots together
  int64_t room_bytes = 0;     // of teams
  std::vector<Round> rounds;
  UpdatePlan updates;  // one more list: of matrices whose pieces never move
  std::vector<ElementTensor> elements;  // that are in no round

  const std::vector<UpdateBatch>& local() const {
    return updates.batches.back();
  }
  // Returns the element of all slots at which a byte of a round's slot is.
  int64_t slot_element(const ScheduleEntry& entry, int64_t byte,
                       int64_t wire_bytes) const {
    return rounds[static_cast<size_t>(entry.round)].slot_at + byte / wire_bytes;
  }

  // By tensor: the extents of this rank's storage that it contributes to sums
  // over the whole model. Among replicas, the first contributes.
  std::vector<std::vector<Extent>> counted;
};

// A batch has at most `width` matrices (Engine::batch_width). Throws UsageError
// if there is no such rank.
RankSchedule make_storage_schedule(const StoragePlan& plan, int32_t rank,
                                   int64_t width);

}  // namespace canzona::plan

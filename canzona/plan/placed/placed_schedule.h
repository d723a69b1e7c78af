// The schedule of one rank for a step on a given storage layout
// (placed_plan.h): its actions in order, and where everything lies. It is made
// from the plan alone, before any memory is touched.
//
//   const PlacedSchedule schedule = make_placed_schedule(plan, rank, width);
//   for (const PlacedAction& action : schedule.actions) …
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

#include "canzona/plan/placed/placed_plan.h"
#include "canzona/plan/ranges.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/updates.h"

namespace canzona {

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
std::vector<Piece> placed_pieces(const PlacedPlan& plan, int32_t matrix,
                                 int32_t rank);
// Returns the number of elements that a rank stores of a tensor.
int64_t stored_elements(const PlacedPlan& plan, int32_t tensor, int32_t rank);
// A state in memory that the caller provides, as fp32.
struct PlacedState {
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

// An element-wise tensor on this rank. New weights travel between replicas as
// fp32, whatever the wire dtype.
struct ElementTensor {
  int32_t tensor = 0;
  int64_t count = 0;
  int64_t at = -1;  // element of the slots, if it is shared
};

struct PlacedRound {
  int32_t number = 0;  // among the rounds of all classes
  // Pieces whose states are updated here, with the element of the slots where
  // their fields begin; -1: nobody needs these.
  std::vector<SlotPiece> prepared;
  std::vector<SlotMatrix> computed;       // sorted by kept matrix
  std::vector<UpdateBatch> batches;       // of these
  std::vector<SharedMatrix> teams;        // of any ranks of the line
  std::vector<SharedStates> team_states;  // of these
  std::vector<SlotPiece> applied;         // with their updates
  std::vector<ElementTensor> shared;      // updated here, then broadcast
  std::vector<ElementTensor> taken;       // updated by another replica
};

struct PlacedAction {
  // Compute, or, of collectives, an all-to-all or a broadcast; kWait: until
  // action `item` has ended.
  EntryKind kind = EntryKind::kPrepare;
  // Compute works on this round (an index into `rounds`), or, if it is -1, on
  // elements and on matrices that never move.
  int32_t item = -1;
  std::string label;                  // "gather round 3"
  std::vector<int32_t> tensors = {};  // that it works on, ascending
  Purpose purpose = Purpose::kNone;
  int32_t team = -1;    // an index into the teams of the round
  int32_t segment = 0;  // of the transform

  // Collectives over a group, on the slots, with counts and offsets in elements
  // of the wire, one block after another.
  int32_t group = -1;                 // number of the group
  int64_t send_at = 0;                // of an all-to-all
  std::vector<int64_t> send = {};     // by rank of the group
  int64_t receive_at = 0;             // of an all-to-all, or of a broadcast
  std::vector<int64_t> receive = {};  // by rank of the group
  int32_t root = -1;                  // of a broadcast, a rank of the world
  int64_t count = 0;                  // of a broadcast
  // Teams exchange bytes of the rooms, which lie anywhere in them.
  std::vector<int64_t> send_offsets = {}, receive_offsets = {};

  bool is_compute() const {
    return !is_collective(kind) && kind != EntryKind::kWait;
  }
  bool is_in_rooms() const { return is_of_team(purpose); }
  bool moves() const;  // this rank sends or receives something
};
// "compute", "all_to_all", "broadcast", "exchange" or "wait".
std::string_view kind_text(const PlacedAction& action);

struct PlacedSchedule {
  int32_t rank = 0;
  // The groups of ranks that actions refer to: the same list on every rank,
  // each group with two or more ascending ranks.
  std::vector<std::vector<int32_t>> groups;
  std::vector<PlacedAction> actions;

  std::vector<int64_t> memories;                // elements of each
  std::vector<PlacedState> states;              // by tensor, then by matrix
  std::vector<std::vector<int32_t>> states_of;  // with the shard, by tensor

  // The matrices of which this rank stores pieces, or which it computes, in the
  // plan's order.
  std::vector<KeptMatrix> kept;

  int64_t slot_elements = 0;  // of the wire, all slots together
  int64_t room_bytes = 0;     // of teams
  std::vector<PlacedRound> rounds;
  std::vector<UpdateBatch> local;       // of matrices whose pieces never move
  std::vector<ElementTensor> elements;  // that are in no round

  // By tensor: the extents of this rank's storage that it contributes to sums
  // over the whole model. Among replicas, the first contributes.
  std::vector<std::vector<Extent>> counted;
};

// A batch has at most `width` matrices (Engine::batch_width). Throws UsageError
// if there is no such rank.
PlacedSchedule make_placed_schedule(const PlacedPlan& plan, int32_t rank,
                                    int64_t width);

}  // namespace canzona

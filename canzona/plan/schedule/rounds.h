// The micro-groups of one rank: what it sends to owners, what it owns, and
// where the data lies in a slot. A slot has two areas,
//
//   W  whole matrices that this rank computes, by the peer that stores the
//      piece; those that tensor parallelism does not cut come last
//   S  this rank's own pieces of the round, by owner; cut ones first
//
// Pieces of matrices that the rank owns itself are in W from the beginning.
// The gather moves S to the owners' W, the scatter moves updates back the same
// way. With several fields the second and later ones of a block follow the
// first; updates take the place of the first. Of a matrix that a team shares
// every member puts its strips together, as an owner does with a whole one, and
// pieces are cut between them. Of a matrix whose blocks have owners, pieces are
// cut where blocks are, and each block is put together as a matrix.
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {

// One all-to-all over the ranks of a home, in bytes. Source and target are
// extents of the round's slot, or of the rooms of teams; offsets are relative
// to them.
struct ExchangeTable {
  Extent source, target;
  std::vector<int64_t> send_bytes, send_offsets;
  std::vector<int64_t> receive_bytes, receive_offsets;
  bool empty = true;  // on every rank of the home
};

// A rectangle of a matrix, packed in a slot.
struct SlotRectangle : Rectangle {
  int64_t at = 0;  // element of the slot
  int64_t field_stride = 0;
};

// A piece of a kept matrix, in S, or in W if this rank is the owner.
struct SlotPiece : SlotRectangle {
  int32_t kept = 0;   // number of the matrix
  int32_t piece = 0;  // of that matrix
  // The rectangles for each member of a team that shares the matrix, or for the
  // owner of each block; then `at` is unused.
  std::vector<SlotRectangle> parts = {};
};

// A matrix, or a block of one, that this rank computes as a whole.
struct SlotMatrix {
  int32_t kept = 0;
  int32_t block = -1;   // its number; -1: all of the matrix
  Rectangle own;        // in the matrix; the rectangles below are in this
  int32_t segment = 0;  // of the home's teams, in which it is computed
  std::vector<SlotRectangle> rectangles;  // where its fields are
  // Where its update is written: W if it is scattered, S if all ranks repeat
  // it.
  std::vector<SlotRectangle> updates;
};

// A matrix that a team shares, on one rank of its home.
struct SharedMatrix {
  int32_t kept = 0;
  int32_t matrix = 0;  // number in the plan
  MatrixShape shape = {};
  int32_t phase = 0;
  std::vector<int32_t> members;  // planes, the head first
  int32_t member = -1;  // this rank's index among them; -1: not a member
  StripFacts facts;
  Rectangle own;  // this rank's strips, where they are in W, and where their
                  // update is written
  std::vector<SlotRectangle> rectangles, updates;

  int32_t size() const { return static_cast<int32_t>(members.size()); }
  bool is_member() const { return member >= 0; }
  bool is_head() const { return member == 0; }
};

// An element-wise tensor of given storage that replicas share: one of them
// updates it, and the others get its new weights, in fp32 whatever the wire.
struct ElementTensor {
  int32_t tensor = 0;
  int64_t count = 0;
  int64_t at = -1;  // element of the slot; -1: not shared
};

struct Round {
  int32_t number = 0;            // among those of all ranks
  std::vector<int32_t> members;  // kept matrices
  // Pieces whose fields this rank prepares, and those whose updates it applies.
  // Nobody needs the fields of a piece at -1, only its states advance.
  std::vector<SlotPiece> prepared, applied;
  std::vector<SlotMatrix> computed;  // by this rank alone, sorted by matrix
  std::vector<SharedMatrix> shared;  // by any team of the home
  // Element-wise tensors that this rank updates for its replicas, and those
  // that another one updates for it.
  std::vector<ElementTensor> given, taken;
  // The first table is for matrices that tp cuts, the second for others, whose
  // updates go to every rank that stores a piece.
  static constexpr int32_t kNumTables = 2;
  using Tables = std::array<ExchangeTable, kNumTables>;
  Tables gather, scatter;
  int64_t num_elements = 0;  // of the slot
  int64_t slot_at = 0;       // first element of the slot, if slots differ

  int32_t num_segments() const;  // of its teams; 1 without any
  const Tables& tables(Purpose purpose) const {
    return purpose == Purpose::kGatherMatrices ? gather : scatter;
  }
};

// Returns no rounds if tp = 1.
std::vector<Round> make_rounds(const PlanPart& plan, const Coordinates& at,
                               const Kept& kept, int num_fields);

}  // namespace canzona

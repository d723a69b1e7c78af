// Messages carry a bucket's tensors between ranks that keep slices of them
// (zero.h). A message consists of one piece for every rank, in the layout at
// rest; a slot holds whole tensors, as the model uses them.
//
//   const ModuleTable table(part, at, layout.parameters);
//   for (const Message& m : messages_of(part, rank, table,
//                                       Resting::kParameters))
//     for (const ExtentCopy& copy : m.copies) … slot[copy.to + i] …
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {

// The modules of a rank's stage: their buckets, and the offsets of their
// tensors in a slot.
struct ModuleTable {
  ModuleTable(const PlanPart& part, const Coordinates& at,
              const FlatLayout& parameters);

  int32_t module(int32_t tensor) const {
    return of_tensor[static_cast<size_t>(tensor)];
  }
  bool is_large(int32_t module) const {
    return large[static_cast<size_t>(module)] != 0;
  }

  std::vector<int32_t> of_tensor;             // module; -1: not on this rank
  std::vector<int64_t> offset;                // in a slot, by tensor
  std::vector<std::vector<int32_t>> tensors;  // by module, without frozen ones
  std::vector<std::vector<int32_t>> buckets;  // of the rank, by module
  std::vector<uint8_t> large;                 // by module: needs a large slot
};

struct Message {
  std::vector<ExtentCopy> copies;  // from the message to a slot
  int64_t num_elements = 0;
  int64_t own_first = 0;  // first element of this rank's piece
  bool direct = false;    // has the layout of the slot, from in_slot() on

  int64_t in_slot() const { return copies.empty() ? 0 : copies[0].to; }
};
// Returns the messages over the ranks that keep the slices at rest
// (GroupKind::kParameters or kGradients), by bucket of the rank.
std::vector<Message> messages_of(const PlanPart& part, int32_t rank,
                                 const ModuleTable& table, Resting what);

// If tensors lie whole although several ranks share their slices, messages are
// assembled in a staging area: all pieces of a bucket, or those that this rank
// keeps. Empty if the layout is not staged.
struct Staging {
  std::vector<ExtentCopy> all, own;  // from the tensors' places
};
Staging staging_of(const PlanPart& part, const FlatLayout& layout,
                   const RankBucket& bucket);

}  // namespace canzona

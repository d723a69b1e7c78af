// The one order in which pieces of several ranks are added: a balanced binary
// tree over rank numbers, neighbours first, an odd one carried up.
//
//   7 pieces:  ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)
//
// Every element is added on its own, so that its bits depend neither on the
// segment it travels in nor on who adds it. The reference, one rank that has
// all pieces, calls the same function.
//
//   std::vector<std::byte> scratch(tree_scratch_bytes(reduction, 7, count));
//   tree_sum(cpu_wire_ops(), reduction, pieces, count, sum, scratch.data());
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "canzona/comm/wire_ops.h"

namespace canzona {

int64_t tree_scratch_bytes(Reduction reduction, int num_pieces, int64_t count);

// The pieces have the form of the wire, the sum that of memory. `sum` and
// `scratch` overlap no piece.
void tree_sum(const WireOps& ops, Reduction reduction,
              std::span<const std::byte* const> pieces, int64_t count,
              std::byte* sum, std::byte* scratch);

}  // namespace canzona

// A TeamExchange says what the members of a team exchange of a matrix that they
// share, and where it lies in each one's room for it. All of it goes over the home's ranks, most of
// which have nothing to send:
//
//   norms    every member's parts of the norm to all
//   sums     the i-th even piece of every member's sum to member i
//   totals   that piece, added and rounded, to the head
//   factors  the head's factor, an even piece to each of the others
//   passes   these pieces, from each of them to the others
//
// Norms go twice in a step, since strips are loaded anew where squares leave
// the range of numbers, the others in every segment. Made from the plan alone;
// no memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/rounds.h"

namespace canzona {

// Bytes from the room's beginning; multiples of 64.
struct TeamRoom {
  int64_t own_norms = 0, norms = 0;
  int64_t sums = 0, pieces = 0;      // of the sum: this member's from all
  int64_t own_total = 0, total = 0;  // rounded; the latter at the head
  int64_t passed = 0, factor = 0;    // the piece of it that came first, and all
  int64_t strips = 0;                // this member's, fp32
  int64_t bytes = 0;
};
TeamRoom team_room(const SharedMatrix& shared);

// One of these exchanges on one rank: the extents of the room that are sent
// from and received in, and what goes to and comes from each plane of the home,
// with offsets in these extents.
struct TeamExchange {
  Extent source, target;
  ExchangeTable table;
};
TeamExchange team_exchange(const SharedMatrix& shared, int32_t num_planes,
                           Purpose purpose);

}  // namespace canzona

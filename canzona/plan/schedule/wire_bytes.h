// WireBytes are what ranks send and receive in a collective, by link class.
//
//   const WireBytes own =
//       member_bytes(part, group, rank, EntryKind::kAllGather, counts);
//
// Collectives are pairwise exchanges: every member sends every other one that
// member's piece (reduce-scatter) or its own (all-gather); an all-reduce is one
// after the other. Two ranks are linked `intra` if they share a node. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/entry_kind.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {

struct WireBytes {
  int64_t sent_intra = 0;
  int64_t sent_inter = 0;
  int64_t received_intra = 0;
  int64_t received_inter = 0;
  WireBytes& operator+=(const WireBytes& other) { return add(other, 1); }
  WireBytes& add(const WireBytes& other, int64_t times);
  friend WireBytes operator+(WireBytes a, const WireBytes& b) { return a += b; }
  int64_t sent() const { return sent_intra + sent_inter; }
  int64_t received() const { return received_intra + received_inter; }
};

// The larger of each.
WireBytes largest(const WireBytes& a, const WireBytes& b);

// Returns the bytes of one member; `counts` are the bytes of each member's
// piece. A broadcast is counted as an all-gather: what several roots send one
// after the other.
WireBytes member_bytes(const PlanPart& part, const RankGroup& group,
                       int32_t rank, EntryKind kind,
                       std::span<const int64_t> counts);

// Adds the bytes of all members to those of the part's ranks: `out[rank]`.
template <class BytesOfRank>
void add_member_bytes(const PlanPart& part, const RankGroup& group,
                      EntryKind kind, std::span<const int64_t> counts,
                      BytesOfRank&& out);

// Members of a group that share a node stand in a row: number and bytes of
// their pieces, and of all others'.
struct NodeShare {
  int64_t near_ranks = 0;
  int64_t near_bytes = 0;
  int64_t far_ranks = 0;
  int64_t far_bytes = 0;
};
// Returns the bytes of a member with a piece of its own, which the share does
// not hold.
WireBytes pairwise_bytes(EntryKind kind, int64_t own, const NodeShare& others);

template <class BytesOfRank>
void add_member_bytes(const PlanPart& part, const RankGroup& group,
                      EntryKind kind, std::span<const int64_t> counts,
                      BytesOfRank&& out) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  const auto piece = [&](int32_t i) { return counts[static_cast<size_t>(i)]; };
  for (int32_t begin = 0, end = 0; begin < group.count; begin = end) {
    const int32_t node = part.node_of(group.rank(begin));
    int64_t here = 0;
    for (; end < group.count && part.node_of(group.rank(end)) == node; ++end)
      here += piece(end);
    const int64_t near = end - begin - 1, far = group.count - 1 - near;
    for (int32_t i = begin; i < end; ++i)
      out(group.rank(i)) += pairwise_bytes(
          kind, piece(i), {near, here - piece(i), far, all - here});
  }
}

}  // namespace canzona

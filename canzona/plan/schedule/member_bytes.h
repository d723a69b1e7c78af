// The bytes that one member of a group sends and receives in a collective, by
// link class.
//
//   const MemberBytes bytes(part, group, rank);
//   WireBytes own = bytes.of(EntryKind::kAllGather, bytes_of_each_member);
//
// Collectives are pairwise exchanges: every member sends every other one that
// member's piece (reduce-scatter) or its own (all-gather); an all-reduce is one
// after the other. The group outlives it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/rounds.h"

namespace canzona {

class MemberBytes {
 public:
  MemberBytes(const PlanPart& part, const RankGroup& group, int32_t rank)
      : group_(group), self_(group.number_of(rank)) {
    for (int32_t i = 0; i < group.count; ++i)
      near_.push_back(part.node_of(group.rank(i)) == part.node_of(rank));
  }

  WireBytes of(EntryKind kind, const std::vector<int64_t>& counts) const {
    WireBytes bytes;
    const int64_t own = counts[index(self_)];
    for (int32_t i = 0; i < group_.count; ++i) {
      if (i == self_) continue;
      const int64_t theirs = counts[index(i)];
      if (kind != EntryKind::kAllGather) add(i, theirs, own, bytes);
      if (kind != EntryKind::kReduceScatter) add(i, own, theirs, bytes);
    }
    return bytes;
  }
  WireBytes all_to_all(const ExchangeTable& table) const {
    WireBytes bytes;
    for (int32_t i = 0; i < group_.count; ++i)
      if (i != self_)
        add(i, table.send_bytes[index(i)], table.receive_bytes[index(i)],
            bytes);
    return bytes;
  }
  // From member `root` to all others.
  WireBytes broadcast(int32_t root, int64_t count) const {
    WireBytes bytes;
    for (int32_t i = 0; i < group_.count; ++i)
      if (i != self_ && self_ == root) add(i, count, 0, bytes);
    if (self_ != root) add(root, 0, count, bytes);
    return bytes;
  }

 private:
  void add(int32_t i, int64_t sent, int64_t received, WireBytes& out) const {
    (near_[index(i)] ? out.sent_intra : out.sent_inter) += sent;
    (near_[index(i)] ? out.received_intra : out.received_inter) += received;
  }

  const RankGroup& group_;
  int32_t self_;
  std::vector<bool> near_;
};

}  // namespace canzona

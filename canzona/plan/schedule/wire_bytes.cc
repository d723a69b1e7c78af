#include "canzona/plan/schedule/wire_bytes.h"

#include <algorithm>

#include "canzona/base/index.h"

namespace canzona {

WireBytes& WireBytes::add(const WireBytes& other, int64_t times) {
  sent_intra += times * other.sent_intra;
  sent_inter += times * other.sent_inter;
  received_intra += times * other.received_intra;
  received_inter += times * other.received_inter;
  return *this;
}

WireBytes largest(const WireBytes& a, const WireBytes& b) {
  return {.sent_intra = std::max(a.sent_intra, b.sent_intra),
          .sent_inter = std::max(a.sent_inter, b.sent_inter),
          .received_intra = std::max(a.received_intra, b.received_intra),
          .received_inter = std::max(a.received_inter, b.received_inter)};
}

WireBytes pairwise_bytes(EntryKind kind, int64_t own, const NodeShare& others) {
  const WireBytes own_to_all{.sent_intra = own * others.near_ranks,
                             .sent_inter = own * others.far_ranks,
                             .received_intra = others.near_bytes,
                             .received_inter = others.far_bytes};
  const WireBytes all_to_own{.sent_intra = own_to_all.received_intra,
                             .sent_inter = own_to_all.received_inter,
                             .received_intra = own_to_all.sent_intra,
                             .received_inter = own_to_all.sent_inter};
  if (kind == EntryKind::kReduceScatter) return all_to_own;
  if (kind == EntryKind::kAllReduce) return own_to_all + all_to_own;
  return own_to_all;
}

WireBytes member_bytes(const PlanPart& part, const RankGroup& group,
                       int32_t rank, EntryKind kind,
                       std::span<const int64_t> counts) {
  const int32_t self = group.number_of(rank), node = part.node_of(rank);
  NodeShare others;
  for (int32_t i = 0; i < group.count; ++i) {
    if (i == self) continue;
    const bool near = part.node_of(group.rank(i)) == node;
    (near ? others.near_ranks : others.far_ranks) += 1;
    (near ? others.near_bytes : others.far_bytes) += counts[index(i)];
  }
  return pairwise_bytes(kind, counts[index(self)], others);
}

}  // namespace canzona

#include "canzona/plan/placed/placed_summary.h"

#include <algorithm>
#include <array>
#include <map>

#include "canzona/base/index.h"
#include "canzona/plan/placed/placed_loads.h"
#include "canzona/plan/placed/placed_owners.h"
#include "canzona/plan/placed/placed_schedule.h"

namespace canzona {

namespace {

WireBytes& bytes_of(PlacedBytes& bytes, PlacedMessage message) {
  switch (message) {
    case PlacedMessage::kGather:
      return bytes.gather;
    case PlacedMessage::kScatter:
      return bytes.scatter;
    case PlacedMessage::kBroadcast:
      break;
  }
  return bytes.broadcast;
}

// What a rank broadcasts in a round is one block: updates of matrices, then
// weights of element-wise tensors, each of which begins at an aligned place.
class BroadcastBlocks {
 public:
  BroadcastBlocks(const PlacedBasis& basis, const PlacedPlan& plan)
      : basis_(basis), wire_(bytes_per_element(plan.options.wire)) {}

  // The bytes that are left free in the block before an item, whose bytes are
  // sent from a root to a replica. Called for all items in order.
  int64_t gap_before(size_t item, int32_t from, int32_t to, int64_t bytes) {
    const int32_t round = basis_.round_of(item);
    int64_t& end = end_[{basis_.class_of(item), round, from, to}];
    const int64_t first =
        basis_.is_matrix(item) ? end : aligned_elements(end / wire_) * wire_;
    const int64_t gap = first - end;
    end = first + bytes;
    return gap;
  }

 private:
  const PlacedBasis& basis_;
  int64_t wire_;
  // Bytes of a block so far: by class, round, root and replica.
  std::map<std::array<int32_t, 4>, int64_t> end_;
};

}  // namespace

std::vector<PlacedBytes> placed_bytes(const PlacedBasis& basis,
                                      const PlacedPlan& plan) {
  std::vector<PlacedBytes> out(index(plan.world));
  const auto node = [&](int32_t rank) {
    return rank / plan.options.ranks_per_node;
  };
  const auto count = [&](PlacedMessage message, int32_t from, int32_t to,
                         int64_t bytes) {
    const bool near = node(from) == node(to);
    WireBytes& sender = bytes_of(out[index(from)], message);
    WireBytes& receiver = bytes_of(out[index(to)], message);
    (near ? sender.sent_intra : sender.sent_inter) += bytes;
    (near ? receiver.received_intra : receiver.received_inter) += bytes;
  };
  if (plan.elements.empty()) {
    for (size_t i = 0; i < basis.holders().size(); ++i)
      basis.each_message(i, count);
    return out;
  }
  BroadcastBlocks blocks(basis, plan);
  for (size_t i = 0; i < basis.holders().size(); ++i)
    basis.each_message(
        i, [&](PlacedMessage message, int32_t from, int32_t to, int64_t bytes) {
          if (message == PlacedMessage::kBroadcast)
            bytes += blocks.gap_before(i, from, to, bytes);
          count(message, from, to, bytes);
        });
  return out;
}

PlacedSummary summarize_placed(const PlacedBasis& basis,
                               const PlacedPlan& plan) {
  PlacedSummary s;
  const auto loads = placed_loads(plan, basis.kinds());
  s.makespan = placed_makespan(loads, basis.kinds());
  s.bound = placed_bound(basis, plan, s.makespan);
  double work = 0;
  std::vector<bool> owns(index(plan.world), false);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    work += static_cast<double>(basis.work_of(m));
    owns[index(plan.matrices[m].owner)] = true;
  }
  s.mean = work / plan.world;
  s.idle_ranks =
      static_cast<int32_t>(std::count(owns.begin(), owns.end(), false));
  for (const PlacedBytes& bytes : placed_bytes(basis, plan))
    s.bytes_per_rank_max =
        std::max(s.bytes_per_rank_max, Bytes(bytes.total().sent()));
  return s;
}

}  // namespace canzona

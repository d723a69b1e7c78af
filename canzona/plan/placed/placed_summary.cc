#include "canzona/plan/placed/placed_summary.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/placed/placed_loads.h"
#include "canzona/plan/placed/placed_owners.h"

namespace canzona {

std::vector<WireBytes> placed_bytes(const PlacedBasis& basis,
                                    const PlacedPlan& plan) {
  std::vector<WireBytes> out(index(plan.world));
  const auto node = [&](int32_t rank) {
    return rank / plan.options.ranks_per_node;
  };
  const auto count = [&](PlacedMessage, int32_t from, int32_t to, int64_t n) {
    const bool near = node(from) == node(to);
    WireBytes& sender = out[index(from)];
    WireBytes& receiver = out[index(to)];
    (near ? sender.sent_intra : sender.sent_inter) += n;
    (near ? receiver.received_intra : receiver.received_inter) += n;
  };
  for (size_t i = 0; i < basis.holders().size(); ++i)
    basis.each_message(i, count);
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
  for (const WireBytes& bytes : placed_bytes(basis, plan))
    s.bytes_per_rank_max = std::max(s.bytes_per_rank_max, Bytes(bytes.sent()));
  return s;
}

}  // namespace canzona

#include "canzona/plan/plan.h"

#include <numeric>
#include <set>

#include "canzona/plan/problem.h"
#include "canzona/plan/schedule/coordinates.h"

namespace canzona {

void OwnerLists::push_back(std::span<const int32_t> ranks) {
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  begin_.push_back(static_cast<uint32_t>(ranks_.size()));
}

std::vector<int32_t> distinct(std::span<const int32_t> owners) {
  if (owners.size() <= 1) return {owners.begin(), owners.end()};
  std::vector<int32_t> out;
  std::set<int32_t> seen;
  for (const int32_t t : owners)
    if (seen.insert(t).second) out.push_back(t);
  return out;
}

int32_t PlanPart::rank_in_whole(int32_t world_rank) const {
  if (ep == 1) return world_rank;
  const Coordinates at = coordinates_of(mesh, world_rank);
  Mesh whole = mesh;
  whole.ep = ep;
  return whole.rank(at.stage, whole.home_of_expert(at.home, e), at.t);
}

int32_t PlanPart::node_of(int32_t world_rank) const {
  return canzona::node_of(options, rank_in_whole(world_rank));
}

void derive_request(SettledRequest& request) {
  request.first_matrix =
      index_matrices(request.model.tensors.size(), request.matrices);
  const auto rule = make_rule_facts(request.rule, request.rule_options);
  request.period = rule->period();
  request.phases = rule->phases();
  request.phase = phases_by_name(request.model, request.matrices,
                                 request.options.splits, request.phases);
}

void derive(PlanPart& part) {
  part.grid = fold(part.mesh, part.options.zero.sizes);
  part.bucket_of.assign(part.model.tensors.size(), -1);
  for (size_t b = 0; b < part.buckets.size(); ++b)
    for (int32_t t : part.buckets[b].tensors)
      part.bucket_of[static_cast<size_t>(t)] = static_cast<int32_t>(b);
}

// Refreshes keep the phases that they have in the whole model.
void derive_parts(Plan& plan) {
  int32_t first_bucket = 0;
  for (PlanPart& part : plan.parts) {
    part.rule_options = plan.rule_options;
    part.period = plan.period;
    part.phases = plan.phases;
    part.first_bucket = first_bucket;
    first_bucket += static_cast<int32_t>(part.buckets.size());
    part.phase.clear();
    for (int32_t t : part.tensors) {
      const int32_t* first = plan.first_matrix.data() + t;
      part.phase.insert(part.phase.end(), plan.phase.begin() + first[0],
                        plan.phase.begin() + first[1]);
    }
    derive(part);
  }
}

void derive(Plan& plan) {
  derive_request(plan);
  derive_parts(plan);
}

}  // namespace canzona

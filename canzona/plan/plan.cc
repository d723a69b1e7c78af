#include "canzona/plan/plan.h"

#include <numeric>

#include "canzona/plan/parts.h"
#include "canzona/plan/problem.h"

namespace canzona {

void OwnerLists::push_back(std::span<const int32_t> ranks) {
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  begin_.push_back(static_cast<uint32_t>(ranks_.size()));
}

int32_t Plan::rank_in_whole(int32_t world_rank) const {
  if (place.ep == 1) return world_rank;
  const int32_t stage = world_rank / mesh.ranks_per_stage();
  const int32_t x = world_rank / mesh.tp % mesh.homes();
  Mesh whole = mesh;
  whole.ep = place.ep;
  return whole.rank(stage, whole.home_of_expert(x, place.e),
                    world_rank % mesh.tp);
}

void derive(Plan& plan) {
  plan.grid =
      is_in_parts(plan) ? plan.mesh : fold(plan.mesh, plan.options.zero.sizes);
  const size_t num_tensors = plan.model.tensors.size();
  plan.bucket_of.assign(num_tensors, -1);
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    for (int32_t t : plan.buckets[b].tensors) {
      plan.bucket_of[static_cast<size_t>(t)] = static_cast<int32_t>(b);
    }
  }
  plan.first_matrix.assign(num_tensors + 1, 0);
  for (const Matrix& m : plan.matrices) {
    ++plan.first_matrix[static_cast<size_t>(m.tensor) + 1];
  }
  std::partial_sum(plan.first_matrix.begin(), plan.first_matrix.end(),
                   plan.first_matrix.begin());
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  plan.period = rule->period();
  plan.phases = rule->phases();
  plan.phase = plan.place.phase;
  if (plan.phase.empty())
    plan.phase = phases_by_name(plan.model, plan.matrices, plan.options.splits,
                                plan.phases);
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    Plan& part = plan.parts[i];
    part.rule_options = plan.rule_options;
    part.place = place_of_part(plan, static_cast<int32_t>(i));
    derive(part);
  }
}

}  // namespace canzona

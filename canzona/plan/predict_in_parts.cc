#include "canzona/plan/predict_in_parts.h"

#include "canzona/plan/parts.h"

namespace canzona {

RankMemory& RankMemory::operator+=(const RankMemory& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  master += other.master;
  states += other.states;
  buffers += other.buffers;
  pools += other.pools;
  return *this;
}

WireBytes& WireBytes::operator+=(const WireBytes& other) {
  sent_intra += other.sent_intra;
  sent_inter += other.sent_inter;
  received_intra += other.received_intra;
  received_inter += other.received_inter;
  return *this;
}

RankCost& RankCost::operator+=(const RankCost& other) {
  elements += other.elements;
  computed += other.computed;
  every_step += other.every_step;
  refresh.resize(std::max(refresh.size(), other.refresh.size()));
  for (size_t p = 0; p < other.refresh.size(); ++p)
    refresh[p] += other.refresh[p];
  num_matrices += other.num_matrices;
  memory += other.memory;
  for (size_t c = 0; c < wire.size(); ++c) wire[c] += other.wire[c];
  transform_seconds_mean += other.transform_seconds_mean;
  transform_seconds_worst += other.transform_seconds_worst;
  element_wise_bytes += other.element_wise_bytes;
  element_wise_seconds += other.element_wise_seconds;
  step_seconds += other.step_seconds;
  step_seconds_mean += other.step_seconds_mean;
  step_seconds_worst += other.step_seconds_worst;
  return *this;
}

std::vector<RankCost> sum_of_parts(
    const Plan& plan,
    const std::function<std::vector<RankCost>(const Plan&)>& costs) {
  std::vector<std::vector<RankCost>> of_parts;
  for (const Plan& part : plan.parts) of_parts.push_back(costs(part));
  std::vector<RankCost> ranks(static_cast<size_t>(plan.mesh.world()));
  for (int32_t r = 0; r < plan.mesh.world(); ++r)
    for (const RankInPart& at : parts_of_rank(plan, r))
      ranks[static_cast<size_t>(r)] +=
          of_parts[static_cast<size_t>(at.part)][static_cast<size_t>(at.rank)];
  return ranks;
}

}  // namespace canzona

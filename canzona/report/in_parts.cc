#include "canzona/report/in_parts.h"

#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/parts.h"

namespace canzona {

std::vector<NamedPart> named_parts(const Plan& plan) {
  if (plan.parts.empty()) return {{&plan, ""}};
  std::vector<NamedPart> parts;
  for (size_t i = 0; i < plan.parts.size(); ++i)
    parts.push_back({&plan.parts[i], part_name(plan, i)});
  return parts;
}

PartMap::PartMap(const Plan& plan) : plan_(plan) {
  std::vector<int32_t> count(plan.parts.size(), 0);
  if (plan.parts.empty()) return;
  for (const Tensor& tensor : plan.model.tensors) {
    part_.push_back(part_of(plan.mesh, plan.model, tensor));
    number_.push_back(count[static_cast<size_t>(part_.back())]++);
  }
}

PlannedTensor PartMap::tensor(int32_t tensor) const {
  if (part_.empty()) return {&plan_, tensor, 0};
  const auto at = static_cast<size_t>(tensor);
  return {&plan_.parts[static_cast<size_t>(part_[at])], number_[at], part_[at]};
}

PlannedMatrix PartMap::matrix(int32_t matrix) const {
  const auto t = plan_.matrices[static_cast<size_t>(matrix)].tensor;
  const PlannedTensor at = tensor(t);
  const int32_t first = at.plan->first_matrix[static_cast<size_t>(at.tensor)];
  return {at.plan, first + matrix - plan_.first_matrix[static_cast<size_t>(t)]};
}

int32_t num_buckets(const Plan& plan) {
  size_t sum = 0;
  for (const NamedPart& part : named_parts(plan))
    sum += part.plan->buckets.size();
  return static_cast<int32_t>(sum);
}

PlannedBucket find_bucket(const Plan& plan, int32_t number) {
  for (NamedPart& part : named_parts(plan)) {
    const int32_t own = number - part.plan->place.first_bucket;
    if (std::cmp_less(own, part.plan->buckets.size()) && own >= 0)
      return {std::move(part), own};
  }
  throw InternalError(cat("bucket ", number, " of ", num_buckets(plan)));
}

std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank) {
  if (plan.parts.empty()) return {{{&plan, ""}, rank}};
  std::vector<PlannedRank> out;
  for (const RankInPart& at : parts_of_rank(plan, rank)) {
    const auto part = static_cast<size_t>(at.part);
    out.push_back({{&plan.parts[part], part_name(plan, part)}, at.rank});
  }
  return out;
}

}  // namespace canzona

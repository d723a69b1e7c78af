#include "canzona/report/in_parts.h"

#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

PlannedTensor planned_tensor(const Plan& plan, int32_t tensor) {
  const TensorInPart& at = plan.in_part[static_cast<size_t>(tensor)];
  return {&plan.parts[static_cast<size_t>(at.part)], at.tensor, at.part};
}

int32_t num_buckets(const Plan& plan) {
  const PlanPart& last = plan.parts.back();
  return last.first_bucket + static_cast<int32_t>(last.buckets.size());
}

PlannedBucket find_bucket(const Plan& plan, int32_t number) {
  for (const PlanPart& part : plan.parts) {
    const int32_t own = number - part.first_bucket;
    if (own >= 0 && std::cmp_less(own, part.buckets.size()))
      return {&part, own};
  }
  throw InternalError(cat("bucket ", number, " of ", num_buckets(plan)));
}

std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank) {
  std::vector<PlannedRank> out;
  for (const RankInPart& at : parts_of_rank(plan, rank))
    out.push_back({&plan.parts[static_cast<size_t>(at.part)], at.rank});
  return out;
}

}  // namespace canzona

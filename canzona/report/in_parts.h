// Where a tensor, a bucket or a rank of a plan is planned, for the views: in
// which part (plan/parts.h), and under which number there.
//
//   const PlannedTensor at = planned_tensor(plan, t);
//   region_of(*at.part, at.tensor);  // places.h
//
// Buckets are counted over all parts: those of dense tensors first, then those
// of the experts of ep coordinate 0, 1, … Nothing is copied: the plan must live
// on. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/parts.h"

namespace canzona {

struct PlannedTensor {
  const PlanPart* part = nullptr;
  int32_t tensor = 0;
  int32_t part_number = 0;
};
PlannedTensor planned_tensor(const Plan& plan, int32_t tensor);

struct PlannedBucket {
  const PlanPart* part = nullptr;
  int32_t bucket = 0;
};
int32_t num_buckets(const Plan& plan);
PlannedBucket find_bucket(const Plan& plan, int32_t number);
// The number of a tensor's bucket among those of all parts.
inline int32_t bucket_number(const PlanPart& part, int32_t tensor) {
  return part.first_bucket + part.bucket_of[static_cast<size_t>(tensor)];
}

// The parts in which a rank works, with its number there.
struct PlannedRank {
  const PlanPart* part = nullptr;
  int32_t rank = 0;
};
std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank);

}  // namespace canzona

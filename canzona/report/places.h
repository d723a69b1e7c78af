// Finds the things of a plan, for the views.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/coordinates.h"

namespace canzona {

// Finds in which part (plan/parts.h) a tensor, a bucket or a rank of a plan is
// planned, and under which number there.
//
//   const PlannedTensor at = planned_tensor(plan, t);
//   region_of(*at.part, at.tensor);  // places.h
//
// Buckets are counted over all parts: those of dense tensors first, then those
// of the experts of ep coordinate 0, 1, … Nothing is copied: the plan must live
// on. Any thread.

struct PlannedTensor {
  const PlanPart* part = nullptr;
  int32_t tensor = 0;
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

// Finds the things of a plan: ranks by coordinates, matrices by name, tensors
// in their buckets.
//
// Functions that speak of homes, owners and buckets take a part of the plan
// (above); the ranks they give are those of the world.

// "dp 17, tp 3": axes of size 1 are left out; "the only rank" if all are.
std::string coordinates_text(const Mesh& mesh, int32_t rank);

// "rank 3", "ranks 0 to 3", "ranks 0 to 1, 4 to 5"; in order.
std::string ranks_text(const std::vector<int32_t>& ranks);

// The rank of the world at home `home` of the tensor's buffer, in plane `t` of
// the grid; of replicas, the first one's.
int32_t rank_of(const PlanPart& plan, int32_t tensor, int32_t home, int32_t t);
// Those of all its planes, in order.
std::vector<int32_t> ranks_of_home(const PlanPart& plan, int32_t tensor,
                                   int32_t home);

// All ranks that compute the update of a matrix, in order: the owner, a team,
// or, where updates are repeated, everyone who repeats it; in every replica.
std::vector<int32_t> owner_ranks(const PlanPart& plan, int32_t matrix);

// True if `rank`, as this part numbers it, is one of them.
bool computes(const PlanPart& plan, int32_t rank, int32_t matrix);

// A BucketRegion says where the elements of a tensor start in its region of its
// bucket, in one plane, and how many the region has.
struct BucketRegion {
  int64_t offset = 0;
  int64_t elements = 0;  // of the tensor's shard
  int64_t total = 0;     // of the region
};
BucketRegion region_of(const PlanPart& plan, int32_t tensor);

// The matrices called `name`, or those of the tensor called `name`; none for a
// tensor that AdamW updates (then `tensor` is set). UsageError names the
// nearest known name.
struct Found {
  int32_t tensor = -1;
  std::vector<int32_t> matrices;
};
Found find_by_name(const Plan& plan, std::string_view name);

std::string name_of(const SettledRequest& plan, int32_t matrix);

// UsageError unless 0 ≤ number < count; `option` and `what` are for the
// message.
void check_number(int64_t number, int64_t count, const char* option,
                  const char* what);

}  // namespace canzona

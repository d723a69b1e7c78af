// Plans in parts (plan/parts.h) for the views: where a tensor, a bucket or a
// rank is planned, and what parts are called.
//
//   const PartMap map(plan);
//   const PlannedMatrix at = map.matrix(m);
//   owner_ranks(*at.plan, at.matrix);  // places.h
//
// A plan without parts is its own only part. Numbers of buckets run on over the
// parts: those of dense tensors first, then those of the experts of ep
// coordinate 0, 1, … Nothing is copied: the plan must live on. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

struct NamedPart {
  const Plan* plan = nullptr;
  std::string name;  // "" of a plan without parts
};
std::vector<NamedPart> named_parts(const Plan& plan);

// Tensors and matrices by their numbers in the part.
struct PlannedTensor {
  const Plan* plan = nullptr;
  int32_t tensor = 0;
  int32_t part = 0;
};
struct PlannedMatrix {
  const Plan* plan = nullptr;
  int32_t matrix = 0;
};

class PartMap {
 public:
  explicit PartMap(const Plan& plan);
  PlannedTensor tensor(int32_t tensor) const;
  PlannedMatrix matrix(int32_t matrix) const;

 private:
  const Plan& plan_;
  // Per tensor; empty for a plan without parts.
  std::vector<int32_t> part_;
  std::vector<int32_t> number_;
};

struct PlannedBucket {
  NamedPart part;
  int32_t bucket = 0;  // of the part
};
int32_t num_buckets(const Plan& plan);
PlannedBucket find_bucket(const Plan& plan, int32_t number);
// The number of a tensor's bucket among those of all parts.
inline int32_t bucket_number(const Plan& part, int32_t tensor) {
  return part.place.first_bucket + part.bucket_of[static_cast<size_t>(tensor)];
}

// The parts in which a rank works, with its number there.
struct PlannedRank {
  NamedPart part;
  int32_t rank = 0;
};
std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank);

}  // namespace canzona

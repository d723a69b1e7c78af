// The budget on bytes: how much of a bucket one home may keep.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace canzona {

// The even share of a bucket ÷ (1 − alpha), in elements; infinite at alpha 1.
double share_limit(int64_t bucket_elements, int64_t num_homes, double alpha);

// Returns the most that one home may keep of a bucket with these tensor shards:
// the larger of the largest shard and share_limit.
int64_t bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                   double alpha);

// The same, but where whole tensors may be unable to meet it (nine equal ones
// on eight homes), at least what longest-first dealing needs: always reachable.
int64_t reachable_bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                             double alpha);

}  // namespace canzona

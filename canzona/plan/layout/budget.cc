#include "canzona/plan/layout/budget.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <vector>

namespace canzona {
namespace {

int64_t longest_first_makespan(std::span<const int64_t> shards,
                               int64_t num_homes) {
  std::vector<int64_t> sorted(shards.begin(), shards.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> loads;
  int64_t most = 0;
  for (int64_t shard : sorted) {
    int64_t load = 0;
    if (static_cast<int64_t>(loads.size()) >= num_homes) {
      load = loads.top();
      loads.pop();
    }
    loads.push(load + shard);
    most = std::max(most, load + shard);
  }
  return most;
}

}  // namespace

double share_limit(int64_t bucket_elements, int64_t num_homes, double alpha) {
  if (alpha >= 1) return std::numeric_limits<double>::infinity();
  return static_cast<double>(bucket_elements) / static_cast<double>(num_homes) /
         (1 - alpha);
}

int64_t bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                   double alpha) {
  const int64_t sum = std::accumulate(shards.begin(), shards.end(), int64_t{0});
  if (alpha >= 1) return sum;
  int64_t largest = 0;
  for (int64_t shard : shards) largest = std::max(largest, shard);
  // Rounding must not turn an exact share away; near alpha 1 all is allowed.
  const double limit = share_limit(sum, num_homes, alpha) * (1 + 1e-12);
  if (limit >= static_cast<double>(sum)) return sum;
  return std::max(largest, static_cast<int64_t>(limit));
}

int64_t reachable_bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                             double alpha) {
  return std::max(bucket_cap(shards, num_homes, alpha),
                  longest_first_makespan(shards, num_homes));
}

}  // namespace canzona

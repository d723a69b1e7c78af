#include "canzona/plan/schedule/pools.h"

#include <algorithm>

#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {
namespace {

int64_t largest_message(const PlanPart& part, int32_t stage, Resting what) {
  int64_t most = 0;
  for (const Bucket& bucket : part.buckets) {
    if (part.buffers[static_cast<size_t>(bucket.buffer)].stage != stage)
      continue;
    if (!is_direct(part, bucket))
      most = std::max(most, message_elements(part, bucket, what));
  }
  return most;
}

}  // namespace

int32_t slots_at_once(const SettledRequest& request) {
  return is_tied(request.model) && request.mesh.pp == 1 ? 2 : 1;
}

std::vector<int64_t> module_elements(const PlanPart& part, int32_t stage) {
  std::vector<int64_t> sums(static_cast<size_t>(num_modules(part.model)), 0);
  for (const Tensor& tensor : part.model.tensors)
    if (stage_of(part.grid, part.model, tensor) == stage)
      sums[static_cast<size_t>(module_of(part.model, tensor))] +=
          shard_elements(part.grid, tensor);
  return sums;
}

int64_t usual_slot(const std::vector<int64_t>& modules) {
  const int64_t layer =
      modules.size() < 3
          ? 0
          : *std::max_element(modules.begin() + 1, modules.end() - 1);
  return layer > 0 ? layer : std::ranges::max(modules);
}

bool is_direct(const PlanPart& part, const Bucket& bucket) {
  const ZeroSizes& zero = part.options.zero.sizes;
  return bucket.tensors.size() == 1 && zero.z2 == zero.z3 && zero.z2 > 1 &&
         part.traffic != Traffic::kPadded;
}

PoolSizes pool_sizes(const PlanPart& part, int32_t stage) {
  PoolSizes pools;
  if (part.grid.places == 1) return pools;
  const ZeroOptions& zero = part.options.zero;
  const std::vector<int64_t> modules = module_elements(part, stage);
  pools.slot = usual_slot(modules);
  const int64_t most = std::ranges::max(modules);
  if (most > pools.slot) pools.large_slot = most;
  const bool pair = slots_at_once(part) == 2;
  const auto large = static_cast<int32_t>(modules.front() > pools.slot) +
                     static_cast<int32_t>(modules.back() > pools.slot);
  const int32_t at_once = pair ? std::max(2 - large, 1) : 1;
  const int32_t large_at_once = pair ? std::max(large, 1) : 1;
  if (zero.sizes.z3 > 1) {
    pools.gather_slots = at_once + zero.prefetch;
    pools.large_gather_slots = large_at_once + std::min(zero.prefetch, 1);
  }
  if (zero.sizes.z2 > 1) {
    pools.scatter_slots = at_once + std::min(zero.prefetch, kMostScatterAhead);
    pools.large_scatter_slots = large_at_once;
  }
  if (pools.large_slot == 0)
    pools.large_gather_slots = pools.large_scatter_slots = 0;
  pools.parameter_staging = largest_message(part, stage, Resting::kParameters);
  pools.gradient_staging = largest_message(part, stage, Resting::kGradients);
  return pools;
}

int32_t first_module(const PlanPart& part, const Bucket& bucket) {
  int32_t first = num_modules(part.model);
  for (int32_t t : bucket.tensors)
    first = std::min(
        first,
        module_of(part.model, part.model.tensors[static_cast<size_t>(t)]));
  return first;
}

}  // namespace canzona

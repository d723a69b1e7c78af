// What hierarchical ZeRO (zero.h) adds to a plan: pools, and traffic of
// modules.
//
//   PoolSizes pools = pool_sizes(plan, stage);
//   for (const ModuleWire& m : module_wire(plan, rank)) …
//
// A module (modules.h) is gathered before each of its uses, and its gradient
// scattered after each micro-batch. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/predict/predict.h"

namespace canzona {

// Of every rank of a stage, in elements. Slots hold a layer each; modules that
// are larger than the largest layer, as embeddings are, have slots of their
// own. Staging holds one message while it is sorted by ranks.
struct PoolSizes {
  int32_t gather_slots = 0;  // 0: parameters are not gathered
  int32_t scatter_slots = 0;
  int64_t slot = 0;
  int32_t large_gather_slots = 0;
  int32_t large_scatter_slots = 0;
  int64_t large_slot = 0;
  int64_t parameter_staging = 0;
  int64_t gradient_staging = 0;

  int64_t gather_bytes(int64_t bytes_per_parameter) const {
    return (gather_slots * slot + large_gather_slots * large_slot +
            parameter_staging) *
           bytes_per_parameter;
  }
  int64_t scatter_bytes() const {
    return (scatter_slots * slot + large_scatter_slots * large_slot +
            gradient_staging) *
           kBytesPerFp32;
  }
};
PoolSizes pool_sizes(const PlanPart& plan, int32_t stage);

// Modules that are in use at once: with a tied head the embedding is used
// beside it.
int32_t slots_at_once(const SettledRequest& plan);

// Elements of each module on a tp rank of the stage.
std::vector<int64_t> module_elements(const PlanPart& plan, int32_t stage);

// Whether a bucket's message lies as the model uses it, and needs no sorting.
bool is_direct(const PlanPart& plan, const Bucket& bucket);
// Gathered ahead where nobody said how many, and memory is not short.
inline constexpr int32_t kUsualPrefetch = 3;
// Scatter slots beyond those in use at once, unless fewer are gathered ahead.
inline constexpr int32_t kMostScatterAhead = 2;

// Bytes of one module on one rank of the world: a gather, a scatter, and what
// follows the last micro-batch: the sum over groups, over replicas, and the new
// parameters. Where the groups of all replicas are added at once (sum_order.h),
// `reduce` is that sum, and `replicas` what goes back to those that repeat each
// other.
struct ModuleWire {
  WireBytes gather;
  WireBytes scatter;
  WireBytes reduce;
  WireBytes replicas;
  WireBytes publish;
  ModuleWire& operator+=(const ModuleWire& other);
};
// By module, buckets of several with the first of them; those of other stages
// are empty.
std::vector<ModuleWire> module_wire(const PlanPart& part, int32_t world_rank);
std::vector<ModuleWire> module_wire(const Plan& plan, int32_t world_rank);

// Of a bucket's modules the one that backward reaches last and forward first.
int32_t first_module(const PlanPart& plan, const Bucket& bucket);

void add_pools(const PlanPart& plan, std::vector<RankCost>& ranks);
// Sums over more than one replica, to the ranks of the world.
void add_replica_sums(const PlanPart& plan, std::vector<RankCost>& world);

}  // namespace canzona

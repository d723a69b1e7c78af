// Memory that modules pass through on a rank of a stage (zero.h): slots for
// those in use or on their way, and staging for messages.
//
//   PoolSizes pools = pool_sizes(part, stage);
//
// A module (modules.h) is gathered before each of its uses, and its gradient
// scattered after each micro-batch. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

// The slots of the micro-group exchange: two rounds gathered, one transformed,
// one scattered. Two, so that a rank whose transform takes longer does not keep
// the others waiting for what it has yet to send.
inline constexpr int64_t kExchangeSlots = 4;

// The pools of every rank of a stage, in elements. Slots hold a layer each;
// modules that are larger than the largest layer, as embeddings are, have slots
// of their own. Staging holds one message while it is sorted by ranks.
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
PoolSizes pool_sizes(const PlanPart& part, int32_t stage);

// Modules that are in use at once: with a tied head the embedding is used
// beside it.
int32_t slots_at_once(const SettledRequest& request);

// Elements of each module on a tp rank of the stage, and of a usual slot: the
// largest layer, or what else there is.
std::vector<int64_t> module_elements(const PlanPart& part, int32_t stage);
int64_t usual_slot(const std::vector<int64_t>& modules);

// True if a bucket's message lies as the model uses it, and needs no sorting.
bool is_direct(const PlanPart& part, const Bucket& bucket);
// Gathered ahead where nobody said how many, and memory is not short.
inline constexpr int32_t kUsualPrefetch = 3;
// Scatter slots beyond those in use at once, unless fewer are gathered ahead.
inline constexpr int32_t kMostScatterAhead = 2;

// Returns the bucket's module that backward reaches last and forward first.
int32_t first_module(const PlanPart& part, const Bucket& bucket);

}  // namespace canzona

// The steps of predict(); each fills its fields of every rank's cost.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona::plan {

// The node of each rank of the grid, in one replica.
using Nodes = std::vector<int32_t>;

// Adds the cost of matrices to the ranks of their homes; each matrix is
// refreshed in its phase.
void add_loads(const PlanPart& part, const std::vector<int32_t>& phase,
               int32_t phases, std::vector<RankCost>& ranks);
void add_matrix_memory(const PlanPart& part, const RuleFacts& rule,
                       std::vector<RankCost>& ranks);
void add_exchange_bytes(const PlanPart& part, const RuleFacts& rule,
                        const Nodes& nodes, std::vector<RankCost>& ranks);
void add_step_times(const PlanPart& part, const RuleFacts& rule,
                    const Nodes& nodes, std::vector<RankCost>& ranks);
void add_element_wise(const PlanPart& part, const RuleFacts& rule,
                      std::vector<RankCost>& ranks);

// Add the cost of buckets to all ranks.
void add_bucket_memory(const PlanPart& part, std::vector<RankCost>& ranks);
void add_pools(const PlanPart& part, std::vector<RankCost>& ranks);

// Add, for all replicas and indexed by the ranks of the part, the bytes of
// bucket collectives, and the seconds of broadcasts and memory passes.
void add_bucket_bytes(const PlanPart& part, std::vector<RankCost>& world);
void add_unhidden_times(const PlanPart& part, std::vector<RankCost>& world);

// Returns the elements that home h keeps of a bucket in one TP plane, all
// slices together.
int64_t matrix_elements_at(const Bucket& bucket, int32_t h);

// Returns the longest matrix run of any home, to which padding extends all
// runs.
int64_t longest_run(const Bucket& bucket);

int64_t bytes_per_parameter(const PlanPart& part);

// Return the elements of all shards of a bucket's matrix-rule or AdamW tensors.
int64_t matrix_elements(const PlanPart& part, const Bucket& bucket);
int64_t adamw_elements(const PlanPart& part, const Bucket& bucket);

}  // namespace canzona::plan

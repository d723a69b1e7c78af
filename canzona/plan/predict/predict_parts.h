// The pieces of predict(); each fills its fields of every rank's cost.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

// The node of each rank of the grid, in one replica.
using Nodes = std::vector<int32_t>;

// Adds what matrices cost the ranks of their homes; each is refreshed in its
// phase.
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

// Adds what buckets cost everybody.
void add_bucket_memory(const PlanPart& part, std::vector<RankCost>& ranks);
void add_pools(const PlanPart& part, std::vector<RankCost>& ranks);

// Adds, for all replicas, by the ranks of the part: bytes of buckets'
// collectives, and seconds of broadcasts and of passes over memory.
void add_bucket_bytes(const PlanPart& part, std::vector<RankCost>& world);
void add_unhidden_times(const PlanPart& part, std::vector<RankCost>& world);

// Elements that home h keeps of a bucket in one TP plane, all slices together.
int64_t matrix_elements_at(const Bucket& bucket, int32_t h);

// Longest matrix run of any home: what padding makes of every run.
int64_t longest_run(const Bucket& bucket);

int64_t bytes_per_parameter(const PlanPart& part);

// Elements of all shards of a bucket's matrix-rule and AdamW tensors.
int64_t matrix_elements(const PlanPart& part, const Bucket& bucket);
int64_t adamw_elements(const PlanPart& part, const Bucket& bucket);

}  // namespace canzona

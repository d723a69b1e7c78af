// Traffic of experts in a plan that cuts no slices. Where it does, they are a
// part of their own (parts.h).
//
//   if (buffer.ep >= 0) wire += expert_wire(plan, bucket, rank);
//
// Pure.
#pragma once

#include <cstdint>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict_zero.h"

namespace canzona {

// What a rank sends and receives in a step for a bucket, among the homes of its
// experts' ep coordinate; nothing on other ranks.
ModuleWire expert_wire(const PlanPart& plan, const Bucket& bucket,
                       int32_t world_rank);

}  // namespace canzona

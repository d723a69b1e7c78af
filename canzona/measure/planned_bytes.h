// The bytes that each rank sends and receives in an iteration, according to a
// plan.
//
//   PlannedBytes bytes = planned_bytes(plan, DType::kFp32, calls);
//   bytes.ranks[3].sent_inter;
//   bytes.seconds(link);       // of the busiest port
//
// They are those of the schedule's entries between the calls of a trainer. With
// bf16 on the wire, gradients travel in bf16, except for the sums that an
// all-reduce returns.
#pragma once

#include <functional>
#include <vector>

#include "canzona/comm/thread/link_model.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/runtime/runtime.h"

namespace canzona::measure {

struct PlannedBytes {
  std::vector<WireBytes> ranks;  // of the whole world

  // The bytes of the rank that sends most.
  int64_t most_sent() const;
  int64_t most_slow() const;
  // How long the busiest port is busy if messages have no latency.
  double seconds(const LinkModel& link) const;
};

// The calls that the ranks of a stage make in an iteration.
using CallsOfStage = std::function<std::vector<TrainerCall>(int32_t stage)>;
PlannedBytes planned_bytes(const Plan& plan, DType wire,
                           const CallsOfStage& calls);
// Those of a trainer that runs one micro-batch after the other.
PlannedBytes planned_bytes(const Plan& plan, DType wire,
                           int64_t num_micro_batches);

}  // namespace canzona::measure

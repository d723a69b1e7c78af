// PlannedBytes are the bytes that each rank sends and receives in an iteration,
// according to a plan.
//
//   PlannedBytes bytes = planned_bytes(settings, plan);
//   bytes.ranks[3].sent_inter;
//   bytes.seconds(link);       // of the busiest port
//
// They are those of the schedule's entries between the calls of a trainer's
// stages. With bf16 on the wire, gradients travel in bf16, except for the sums
// that an all-reduce returns.
#pragma once

#include <vector>

#include "canzona/comm/thread/link_model.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/train/trainer.h"

namespace canzona {

struct PlannedBytes {
  std::vector<WireBytes> ranks;  // of the whole world
  // Communication that nothing can hide, by rank: the gathers before the first
  // product and the scatters after the last. The embedding has no products, so
  // these are its own and the first layer's.
  std::vector<WireBytes> edges;

  // The bytes of the rank that sends most.
  int64_t most_sent() const;
  int64_t most_slow() const;
  // How long the busiest port is busy if messages have no latency.
  double seconds(const LinkModel& link) const;
  double edge_seconds(const LinkModel& link) const;
};

PlannedBytes planned_bytes(const TrainSettings& settings, const Plan& plan);
// Returns the bytes of a step alone, by rank.
std::vector<WireBytes> step_bytes(const Plan& plan, GradientWire wire);

}  // namespace canzona

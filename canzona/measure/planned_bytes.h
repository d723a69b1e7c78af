// PlannedBytes are what a plan says that a rank sends and receives in an
// iteration.
//
//   PlannedBytes bytes = planned_bytes(settings, plan);
//   bytes.ranks[3].sent_inter;
//   bytes.seconds(link);       // of the busiest port
//
// They are those of the schedule's entries between the calls of a trainer's
// stages. Gradients travel as the run says: in bf16 all but the sums that an
// all-reduce hands back. Pure.
#pragma once

#include <vector>

#include "canzona/comm/thread/link_model.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/train/trainer.h"

namespace canzona {

struct PlannedBytes {
  std::vector<WireBytes> ranks;  // of the world
  // Communication that nothing can hide, by rank: the gathers before the first
  // product, and the scatters after the last. The embedding, which is looked
  // up, has none: so they are its own and the first layer's.
  std::vector<WireBytes> edges;

  // The largest rank's.
  int64_t most_sent() const;
  int64_t most_slow() const;
  // The time for which the busiest port is busy, if no message has any latency.
  double seconds(const LinkModel& link) const;
  double edge_seconds(const LinkModel& link) const;
};

PlannedBytes planned_bytes(const TrainSettings& settings, const Plan& plan);
// The bytes of a step alone, by rank.
std::vector<WireBytes> step_bytes(const Plan& plan, GradientWire wire);

}  // namespace canzona

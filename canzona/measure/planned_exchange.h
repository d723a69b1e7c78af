// The gathers and scatters of matrices in a planned step: how long each round
// occupies links, and what of it a pipeline cannot hide.
//
//   const PlannedExchange exchange = planned_exchange(plan);
//   exchange.limit();                       // of the share that can be hidden
//   exchange.step_seconds({.per_transform = 1.2, .elements = 0.01});
//
// Times are for the links of the plan's options.
#pragma once

#include <vector>

#include "canzona/comm/thread/link_model.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/step_times.h"
#include "canzona/train/trainer.h"

namespace canzona {

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

struct PlannedExchange {
  // For each home its rounds, with transforms as predicted by the plan.
  using Homes = std::vector<std::vector<StepRound>>;
  std::vector<Homes> parts;  // of the plan
  // Sums over all ranks, each operation taking as long as on the rank's busiest
  // port: over all operations; and over the first gathers and last scatters,
  // which overlap no transform, only updates of elements.
  double all = 0;
  double ends = 0;

  double limit() const { return all > 0 ? 1 - ends / all : 1; }

  struct StepRates {
    double per_transform = 1;  // seconds per predicted second
    double elements = 0;       // seconds for passes over elements
    double per_operation = 0;  // seconds beside those on links
    bool pipelined = true;     // false: every operation is awaited
  };
  // Returns the step time of the slowest home, rank by rank
  // (plan/predict/step_times.h), including the exchange; 0 if there is none.
  double step_seconds(const StepRates& rates) const;
};

PlannedExchange planned_exchange(const Plan& plan);

}  // namespace canzona

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

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/step_times.h"

namespace canzona {

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

// The step's gathers and scatters of matrices as a plan has them: how long each
// round holds links, and what of it a pipeline cannot hide.
//
//   const PlannedExchange exchange = planned_exchange(plan);
//   exchange.limit();                       // of the share that can be hidden
//   exchange.step_seconds({.per_transform = 1.2, .elements = 0.01});
//
// On the links of the plan's options. Pure.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/step_times.h"

namespace canzona {

struct PlannedExchange {
  // By home: its rounds, transforms as the plan predicts them.
  using Homes = std::vector<std::vector<StepRound>>;
  std::vector<Homes> parts;  // of the plan
  // Sums over all ranks, each operation as long as on the rank's busiest port:
  // of all operations; of the first gathers and the last scatters, which have
  // no transform beside them, only updates of elements.
  double all = 0;
  double ends = 0;

  double limit() const { return all > 0 ? 1 - ends / all : 1; }

  struct StepRates {
    double per_transform = 1;  // seconds for a predicted one
    double elements = 0;       // seconds of passes over elements
    double per_operation = 0;  // seconds, beside those on links
    bool pipelined = true;     // false: every operation is waited for
  };
  // The step of the slowest home, rank by rank (plan/predict/step_times.h), the
  // exchange included; 0 where there is none.
  double step_seconds(const StepRates& rates) const;
};

PlannedExchange planned_exchange(const Plan& plan);

}  // namespace canzona

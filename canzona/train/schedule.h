// A Schedule is the learning rate by steps, as a factor of its peak.
//
//   double rate = peak * rate_factor(step, steps, {.kind = "cosine"});
//
// Steps count 0 … steps - 1. Warm-up rises evenly to 1 and ends with step
// warmup - 1. Then, by kind, with p from 0 at the next step to 1 at `steps`:
//
//   constant   1
//   linear     1 - p · (1 - final)
//   cosine     final + (1 - final) · (1 + cos π p) / 2
//   wsd        1, and linear over the last `decay` steps
//
// All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace canzona {

struct ScheduleSettings {
  std::string kind = "wsd";
  int64_t warmup = 0;  // steps
  double decay = 0.2;  // wsd: below 1 a share of all steps, else steps
  double final = 0;    // factor at the end
};

std::vector<std::string> schedule_kinds();

// Returns a factor from 0 to 1. `steps` may be 0; then there is no step to ask
// for.
double rate_factor(int64_t step, int64_t steps,
                   const ScheduleSettings& settings);

}  // namespace canzona

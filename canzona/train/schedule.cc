#include "canzona/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "canzona/base/check.h"

namespace canzona {
namespace {

// Returns the progress p of `step`: 0 at `first`, 1 at `end`.
double progress(int64_t step, int64_t first, int64_t end) {
  if (step <= first) return 0;
  if (step >= end) return 1;
  return static_cast<double>(step - first) / static_cast<double>(end - first);
}

int64_t decay_steps(int64_t steps, double decay) {
  const double count =
      decay < 1 ? std::round(decay * static_cast<double>(steps)) : decay;
  return static_cast<int64_t>(std::min(count, static_cast<double>(steps)));
}

double linear(double p, double final) { return 1 - p * (1 - final); }

}  // namespace

std::vector<std::string> schedule_kinds() {
  return {"constant", "linear", "cosine", "wsd"};
}

double rate_factor(int64_t step, int64_t steps,
                   const ScheduleSettings& settings) {
  const int64_t warmup = settings.warmup;
  if (step < warmup)
    return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double p = progress(step, warmup, steps);
  if (settings.kind == "constant") return 1;
  if (settings.kind == "linear") return linear(p, settings.final);
  if (settings.kind == "cosine")
    return settings.final +
           (1 - settings.final) * (1 + std::cos(std::numbers::pi * p)) / 2;
  CANZONA_CHECK_EQ(settings.kind, "wsd", "kind of schedule");
  const int64_t first =
      std::max(warmup, steps - decay_steps(steps, settings.decay));
  return linear(progress(step, first, steps), settings.final);
}

}  // namespace canzona

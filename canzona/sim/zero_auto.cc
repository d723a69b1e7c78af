#include "canzona/sim/zero_auto.h"

#include <utility>

#include "canzona/base/error.h"

namespace canzona {

ZeroWeight weigh_zero(PlanRequest request, const Workload& workload,
                      const ZeroChoice& choice) {
  request.options.zero.sizes = choice.sizes;
  if (choice.experts.z1 > 0) request.options.zero.experts = choice.experts;
  request.options.strategy = choice.strategy;
  const IterationPrediction predicted =
      predict_iteration(make_plan(request), workload);
  ZeroWeight weight;
  weight.memory_bytes = predicted.memory_bytes;
  weight.slow_bytes = predicted.slow_bytes;
  weight.fast_bytes = predicted.fast_bytes;
  weight.seconds = predicted.time.seconds;
  weight.step_seconds = predicted.time.step_seconds;
  return weight;
}

ZeroSearch search_zero(const PlanRequest& request, const Workload& workload,
                       std::vector<std::string> strategies) {
  if (strategies.empty()) strategies = {request.options.strategy};
  const auto weigh = [&](const ZeroChoice& choice) {
    try {
      return weigh_zero(request, workload, choice);
    } catch (const UsageError& error) {
      ZeroWeight refused;
      refused.refusal = error.what();
      return refused;
    }
  };
  return rank_choices(all_choices(request.mesh.homes(), strategies),
                      request.options.memory_cap_bytes, weigh);
}

}  // namespace canzona

#include "canzona/measure/iteration_numbers.h"

#include <algorithm>

#include "canzona/comm/from_all.h"
#include "canzona/measure/step_times.h"

namespace canzona {
namespace {

// Ranks of other stages than a module's have no time for it.
void add_modules(const std::vector<std::vector<double>>& ranks,
                 IterationTrial& trial) {
  for (size_t i = 0; i < ranks.front().size(); ++i) {
    std::vector<double> all;
    for (const std::vector<double>& rank : ranks)
      if (rank[i] > 0) all.push_back(rank[i]);
    auto& to = i % 2 == 0 ? trial.forward_seconds : trial.backward_seconds;
    to.push_back(all.empty() ? 0 : median_of(std::move(all)));
  }
}

void add_rank(const IterationNumbers& rank, int64_t iterations,
              IterationTrial& trial) {
  trial.bytes_sent.push_back(rank.bytes / iterations);
  trial.slow_bytes_sent.push_back(rank.slow_bytes / iterations);
  trial.memory_bytes.push_back(rank.memory);
  Runtime::PoolUse& pools = trial.pools;
  pools.gather_slots = std::max(pools.gather_slots, rank.pools.gather_slots);
  pools.scatter_slots = std::max(pools.scatter_slots, rank.pools.scatter_slots);
  pools.bytes = std::max(pools.bytes, rank.pools.bytes);
}

void add_ranks(const std::vector<IterationNumbers>& ranks,
               const IterationTrialRequest& request, IterationTrial& trial) {
  const double share =
      1.0 / (request.steps * static_cast<double>(ranks.size()));
  for (const IterationNumbers& rank : ranks) {
    trial.compute_seconds += share * (rank.total - rank.waited);
    trial.waited_seconds += share * rank.waited;
    trial.busy_seconds += share * rank.busy;
    trial.exposed_seconds += share * rank.exposed;
    trial.iteration_seconds =
        std::max(trial.iteration_seconds, rank.total / request.steps);
    trial.step_seconds =
        std::max(trial.step_seconds, rank.step / request.steps);
    trial.step_waited_seconds += share * rank.step_waited;
    trial.step_busy_seconds += share * rank.step_busy;
    trial.step_exposed_seconds += share * rank.step_exposed;
    trial.loss += rank.loss / static_cast<double>(ranks.size());
    add_rank(rank, request.warmup + request.steps, trial);
  }
}

}  // namespace

IterationTrial trial_of_all(Communicator& world, Runtime& runtime,
                            const IterationTrialRequest& request,
                            const IterationNumbers& numbers,
                            const std::vector<double>& seconds,
                            const std::vector<double>& module_seconds) {
  IterationTrial trial;
  if (request.wants_digests) {
    trial.digest = runtime.parameter_digest();
    trial.state_digest = runtime.state_digest();
  }
  trial.seconds = slowest(from_all<double>(world, seconds));
  add_modules(from_all<double>(world, module_seconds), trial);
  add_ranks(one_from_all(world, numbers), request, trial);
  return trial;
}

}  // namespace canzona

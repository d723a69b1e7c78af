#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/rank_threads.h"

namespace canzona::sim {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError(cat("simulated iteration: ", what));
}

void check_module(const ModuleWork& module, size_t number) {
  require(module.forward_seconds >= 0 && module.backward_seconds >= 0,
          cat("module ", number, " computes for a negative time"));
  require(module.publish_after >= 0 && module.publish_after <= 1,
          cat("module ", number, " leaves after ", module.publish_after,
              " of the step, expected 0 to 1"));
  for (const auto operation : kModuleOperations) {
    check_transfer((module.*operation).first);
    check_transfer((module.*operation).second);
  }
}

void check_uses(const IterationWork& work) {
  const auto num_modules = static_cast<int32_t>(work.modules.size());
  const std::vector<ModuleUse> uses = uses_of(work.calls);
  for (const ModuleUse& use : uses)
    require(use.module >= 0 && use.module < num_modules,
            cat("a use of module ", use.module, ", there are ", num_modules));
  require(!uses.empty(), "no module is used");
}

void check_rates(const IterationWork& work) {
  const Links& links = work.links;
  require(links.intra_bytes_per_second > 0 && links.inter_bytes_per_second > 0,
          "links need a bandwidth above 0");
  require(links.latency_seconds >= 0, "a latency is not negative");
  require(work.copy_bytes_per_second >= 0, "a copy rate is not negative");
  require(work.meetings.idle >= 0 && work.meetings.beside_compute >= 0,
          "a meeting takes no negative time");
  require(work.step_seconds >= 0, "a step's time is not negative");
  require(work.bubble_seconds >= 0, "a bubble's time is not negative");
}

}  // namespace

WireBytes bytes_of_uses(std::span<const ModuleWork> modules,
                        std::span<const ModuleUse> uses) {
  WireBytes sum;
  for (const ModuleUse& use : uses) {
    const ModuleWork& module = modules[index(use.module)];
    sum += module.gather.bytes();
    if (use.completes()) sum += module.scatter.bytes();
    if (use.is_last) sum += module.reduce.bytes() + module.publish.bytes();
  }
  return sum;
}

int32_t least_gather_slots(const IterationWork& work) {
  int32_t held = 0, most = 0;
  for (const ModuleUse& use : uses_of(work.calls)) {
    if (!work.modules[index(use.module)].gather.empty()) ++held;
    most = std::max(most, held);
    if (!use.is_beside) held = 0;
  }
  return most;
}

int32_t least_scatter_slots(const IterationWork& work) {
  std::vector<bool> open(work.modules.size(), false);
  int32_t held = 0, most = 0;
  for (const ModuleUse& use : uses_of(work.calls)) {
    const size_t m = index(use.module);
    if (!use.is_backward || work.modules[m].scatter.empty()) continue;
    if (!open[m]) ++held;
    open[m] = use.is_beside;
    most = std::max(most, held);
    if (!use.is_beside) --held;
  }
  return most;
}

void check_work(const IterationWork& work) {
  for (size_t m = 0; m < work.modules.size(); ++m)
    check_module(work.modules[m], m);
  check_uses(work);
  check_rates(work);
  const int32_t gathers = least_gather_slots(work);
  require(work.gather_slots >= gathers,
          cat("gathers need ", gathers, " slots, got ", work.gather_slots));
  const int32_t scatters = least_scatter_slots(work);
  require(work.scatter_slots >= scatters,
          cat("scatters need ", scatters, " slots, got ", work.scatter_slots));
}

double IterationTime::hidden_fraction() const {
  if (!(busy_seconds > 0)) return 1;
  return std::max(0.0, 1 - waited() / busy_seconds);
}

namespace {

double edge_seconds(const IterationWork& work,
                    const std::vector<ModuleUse>& uses) {
  const auto alone = [&](const Legs& legs) {
    return seconds_alone(legs, work.links, work.copy_bytes_per_second);
  };
  const ModuleWork& first = work.modules[index(uses.front().module)];
  double sum = alone(first.publish) + alone(first.gather);
  const auto last =
      std::find_if(uses.rbegin(), uses.rend(),
                   [](const ModuleUse& use) { return use.completes(); });
  if (last == uses.rend()) return sum;
  const ModuleWork& module = work.modules[index(last->module)];
  return sum + alone(module.scatter) + alone(module.reduce);
}

}  // namespace

// An event may unblock several threads: after each event, all are polled in a
// fixed order until none of them moves.
IterationTime simulate_iteration(const IterationWork& work) {
  check_work(work);
  constexpr int kIterations = 3;
  IterationState state(work);
  SimulatedData data(state);
  SimulatedGather gather(state, data);
  SimulatedScatter scatter(state, data);
  SimulatedCompute compute(state, data, gather, scatter, kIterations);
  do {
    while (compute.move() || gather.move() || scatter.move() || data.move()) {
    }
  } while (!compute.is_ended() && state.events.run_next());
  CANZONA_CHECK(compute.is_ended(), "a simulated iteration stands still");
  state.record.edge_seconds = edge_seconds(work, state.uses);
  return std::move(state.record);
}

}  // namespace canzona::sim

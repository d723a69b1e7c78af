#include "canzona/sim/iteration.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/compute_thread.h"

namespace canzona {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError(cat("simulated iteration: ", what));
}

void check_module(const ModuleWork& module, size_t number) {
  require(module.forward_seconds >= 0 && module.backward_seconds >= 0,
          cat("module ", number, " computes for a negative time"));
  for (const Transfer* transfer :
       {&module.gather, &module.scatter, &module.gather_inside,
        &module.scatter_across, &module.reduce, &module.publish,
        &module.reduce_across, &module.publish_inside})
    check_transfer(*transfer);
}

void check_uses(const IterationWork& work) {
  const auto num_modules = static_cast<int32_t>(work.modules.size());
  for (const ModuleUse& use : work.uses)
    require(use.module >= 0 && use.module < num_modules,
            cat("a use of module ", use.module, ", there are ", num_modules));
  require(!work.uses.empty(), "no module is used");
  require(!work.uses.back().beside, "the last use stands beside none");
}

void check_rates(const IterationWork& work) {
  const Links& links = work.links;
  require(links.intra_bytes_per_second > 0 && links.inter_bytes_per_second > 0,
          "links need a bandwidth above 0");
  require(links.latency_seconds >= 0, "a latency is not negative");
  require(work.copy_bytes_per_second >= 0, "a copy rate is not negative");
  require(work.slowdown >= 0 && work.slowdown <= 1,
          "a slowdown is between 0 and 1");
  require(work.meetings.idle >= 0 && work.meetings.beside_compute >= 0,
          "a meeting takes no negative time");
  require(work.step_seconds >= 0, "a step's time is not negative");
  require(work.bubble_seconds >= 0, "a bubble's time is not negative");
}

}  // namespace

std::vector<ModuleUse> uses_in_order(const std::vector<int32_t>& modules,
                                     bool tied) {
  const bool beside = tied && modules.size() > 1;
  std::vector<ModuleUse> uses;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (beside && i + 1 == modules.size())
      uses.push_back({modules.front(), PassKind::kForward, true});
    uses.push_back({modules[i], PassKind::kForward});
  }
  for (size_t i = modules.size(); i-- > 0;) {
    if (beside && i + 1 == modules.size())
      uses.push_back({modules.front(), PassKind::kBackward, true});
    uses.push_back({modules[i], PassKind::kBackward});
  }
  return uses;
}

WireBytes iteration_bytes(const IterationWork& work) {
  WireBytes sum = work.step_bytes;
  for (const ModuleUse& use : work.uses) {
    const ModuleWork& module = work.modules[static_cast<size_t>(use.module)];
    const bool completes = use.pass == PassKind::kBackward && !use.beside;
    for (int64_t i = 0; i < work.num_micro_batches; ++i) {
      sum = sum + module.gather.bytes + module.gather_inside.bytes;
      if (completes)
        sum = sum + module.scatter.bytes + module.scatter_across.bytes;
    }
    if (completes)
      sum = sum + module.reduce.bytes + module.reduce_across.bytes +
            module.publish.bytes + module.publish_inside.bytes;
  }
  return sum;
}

int32_t least_gather_slots(const IterationWork& work) {
  int32_t held = 0, most = 0;
  for (const ModuleUse& use : work.uses) {
    if (!work.modules[static_cast<size_t>(use.module)].gather.empty()) ++held;
    most = std::max(most, held);
    if (!use.beside) held = 0;
  }
  return most;
}

int32_t least_scatter_slots(const IterationWork& work) {
  std::vector<bool> open(work.modules.size(), false);
  int32_t held = 0, most = 0;
  for (const ModuleUse& use : work.uses) {
    const auto m = static_cast<size_t>(use.module);
    if (use.pass == PassKind::kForward || work.modules[m].scatter.empty())
      continue;
    if (!open[m]) ++held;
    open[m] = use.beside;
    most = std::max(most, held);
    if (!use.beside) --held;
  }
  return most;
}

void check_work(const IterationWork& work) {
  require(work.num_micro_batches >= 1,
          cat("at least one micro-batch, got ", work.num_micro_batches));
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

const ModuleWork* last_scattered(const IterationWork& work) {
  const ModuleWork* last = nullptr;
  for (const ModuleUse& use : work.uses)
    if (use.pass == PassKind::kBackward && !use.beside)
      last = &work.modules[static_cast<size_t>(use.module)];
  return last;
}

double edge_seconds(const IterationWork& work) {
  const auto alone = [&](const Transfer& transfer) {
    return seconds_alone(transfer, work.links, work.copy_bytes_per_second);
  };
  const auto first = static_cast<size_t>(work.uses.front().module);
  double sum = alone(work.modules[first].publish) +
               alone(work.modules[first].publish_inside) +
               alone(work.modules[first].gather) +
               alone(work.modules[first].gather_inside);
  if (const ModuleWork* last = last_scattered(work))
    sum += alone(last->scatter) + alone(last->scatter_across) +
           alone(last->reduce) + alone(last->reduce_across);
  return sum;
}

}  // namespace

// An event may set several threads going: after each, all are asked in a fixed
// order until none of them moves.
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
  state.record.edge_seconds = edge_seconds(work);
  return std::move(state.record);
}

}  // namespace canzona

// Simulated iterations for the tests of this folder.
#pragma once

#include <algorithm>
#include <limits>

#include "canzona/plan/testing/test_support.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona::sim {

// This many bytes each way in one message.
inline Transfer intra_transfer(int64_t bytes) {
  Transfer transfer;
  transfer.bytes.sent_intra = transfer.bytes.received_intra = bytes;
  transfer.messages_intra = bytes > 0 ? 1 : 0;
  return transfer;
}
inline Legs intra_leg(int64_t bytes) {
  return {.first = intra_transfer(bytes)};
}

inline Transfer inter_transfer(int64_t bytes) {
  Transfer transfer;
  transfer.bytes.sent_inter = transfer.bytes.received_inter = bytes;
  transfer.messages_inter = bytes > 0 ? 1 : 0;
  return transfer;
}
inline Legs inter_leg(int64_t bytes) {
  return {.first = inter_transfer(bytes)};
}

// A byte takes a second on every link.
inline Links slow_links(double latency = 0) {
  return {.intra_bytes_per_second = 1,
          .inter_bytes_per_second = 1,
          .latency_seconds = latency,
          .nominal = false};
}

// Modules 0 to n - 1 and back. If tied, the first is also used together with
// the last.
inline std::vector<TrainerCall> calls_of(int32_t num_modules,
                                         int64_t micro_batches = 1,
                                         bool tied = false) {
  using Kind = TrainerCall::Kind;
  std::vector<TrainerCall> calls;
  const auto use = [&](int32_t module, bool backward) {
    const bool pair = tied && module > 0 && module == num_modules - 1;
    if (pair) calls.push_back({Kind::kWaitParams, 0});
    calls.push_back({Kind::kWaitParams, module});
    if (backward) calls.push_back({Kind::kGradReady, module});
    if (pair) calls.push_back({Kind::kReleaseParams, 0});
    calls.push_back({Kind::kReleaseParams, module});
  };
  for (int64_t i = 0; i < micro_batches; ++i) {
    for (int32_t m = 0; m < num_modules; ++m) use(m, false);
    for (int32_t m = num_modules; m-- > 0;) use(m, true);
  }
  calls.push_back({Kind::kStep, -1});
  return calls;
}

// Identical modules, on slow_links().
inline IterationWork uniform_work(int32_t num_modules,
                                  const ModuleWork& module) {
  IterationWork work;
  work.modules.assign(static_cast<size_t>(num_modules), module);
  work.calls = calls_of(num_modules);
  work.links = slow_links();
  return work;
}

inline Transfer random_transfer(Random& random, int64_t most) {
  if (random.between(0, 3) == 0) return {};
  Transfer transfer;
  WireBytes& bytes = transfer.bytes;
  bytes.sent_intra = random.between(0, most);
  bytes.received_intra = random.between(0, most);
  if (random.coin()) {
    bytes.sent_inter = random.between(0, most);
    bytes.received_inter = random.between(0, most);
  }
  transfer.messages_intra = random.between(0, 7);
  transfer.messages_inter = random.between(0, 7);
  transfer.packed_bytes = random.between(0, most);
  transfer.copied_bytes = random.between(0, most);
  transfer.parts = random.between(1, 5);
  return transfer;
}

inline ModuleWork random_module(Random& random) {
  ModuleWork module;
  module.forward_seconds = static_cast<double>(random.between(0, 20));
  module.backward_seconds = static_cast<double>(random.between(0, 40));
  if (random.coin())
    module.publish_after = static_cast<double>(random.between(0, 4)) / 4;
  for (const auto operation : kModuleOperations)
    (module.*operation).first = random_transfer(random, 20);
  if (random.between(0, 3) > 0) return module;
  for (const auto operation : kModuleOperations)
    (module.*operation).second = random_transfer(random, 20);
  return module;
}

// `alike` uses the same module repeatedly, like layers.
inline IterationWork random_work(Random& random, bool alike = false) {
  IterationWork work;
  const int32_t num_modules = random.small(1, 8);
  const ModuleWork layer = random_module(random);
  for (int32_t m = 0; m < num_modules; ++m)
    work.modules.push_back(alike ? layer : random_module(random));
  const bool tied = random.between(0, 4) == 0;
  work.calls = calls_of(num_modules, random.between(1, 4), tied);
  work.step_seconds = static_cast<double>(random.between(0, 50));
  work.gather_slots =
      random.small(std::max(1, least_gather_slots(work)), 2 * num_modules);
  work.scatter_slots =
      random.small(std::max(1, least_scatter_slots(work)), num_modules + 1);
  work.links = slow_links(random.coin() ? 0.5 : 0);
  work.links.intra_bytes_per_second = random.coin() ? 1 : 4;
  work.copy_bytes_per_second = random.coin() ? 0 : 8;
  return work;
}

inline IterationTime simulate_with(IterationWork work, Overlap overlap) {
  work.overlap = overlap;
  return simulate_iteration(work);
}

// Seconds of all forward and backward passes of an iteration; each ends with a
// gradient.
inline double all_compute(const IterationWork& work) {
  double sum = 0;
  for (const TrainerCall& call : work.calls) {
    if (call.kind != TrainerCall::Kind::kGradReady) continue;
    const ModuleWork& module = work.modules[static_cast<size_t>(call.module)];
    sum += module.forward_seconds + module.backward_seconds;
  }
  return sum;
}

inline WireBytes iteration_bytes(const IterationWork& work) {
  return work.step_bytes + bytes_of_uses(work.modules, uses_of(work.calls));
}

// Calls visit(transfer) for every operation of an iteration.
template <class Visit>
void each_transfer(const IterationWork& work, Visit visit) {
  const auto visit_legs = [&](const Legs& legs) {
    visit(legs.first);
    visit(legs.second);
  };
  for (const TrainerCall& call : work.calls) {
    if (call.module < 0) continue;
    const ModuleWork& module = work.modules[static_cast<size_t>(call.module)];
    if (call.kind == TrainerCall::Kind::kWaitParams) visit_legs(module.gather);
    if (call.kind == TrainerCall::Kind::kGradReady) visit_legs(module.scatter);
  }
  for (const ModuleWork& module : work.modules) {
    visit_legs(module.reduce);
    visit_legs(module.publish);
  }
}

}  // namespace canzona::sim

// Simulated iterations for the tests of this folder.
#pragma once

#include <algorithm>
#include <limits>

#include "canzona/plan/testing/test_support.h"
#include "canzona/sim/iteration.h"

namespace canzona {

// So many bytes each way in one message.
inline Transfer intra_transfer(int64_t bytes) {
  Transfer transfer;
  transfer.bytes.sent_intra = transfer.bytes.received_intra = bytes;
  transfer.messages_intra = bytes > 0 ? 1 : 0;
  return transfer;
}

inline Transfer inter_transfer(int64_t bytes) {
  Transfer transfer;
  transfer.bytes.sent_inter = transfer.bytes.received_inter = bytes;
  transfer.messages_inter = bytes > 0 ? 1 : 0;
  return transfer;
}

// A byte takes a second on every link.
inline Links slow_links(double latency = 0) {
  return {.intra_bytes_per_second = 1,
          .inter_bytes_per_second = 1,
          .latency_seconds = latency,
          .nominal = false};
}

// Modules 0 to n - 1 and back.
inline std::vector<ModuleUse> uses_of(int32_t num_modules, bool tied = false) {
  std::vector<int32_t> modules;
  for (int32_t m = 0; m < num_modules; ++m) modules.push_back(m);
  return uses_in_order(modules, tied);
}

// Modules that are all alike, on slow_links().
inline IterationWork uniform_work(int32_t num_modules,
                                  const ModuleWork& module) {
  IterationWork work;
  work.modules.assign(static_cast<size_t>(num_modules), module);
  work.uses = uses_of(num_modules);
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
  module.gather = random_transfer(random, 20);
  module.scatter = random_transfer(random, 20);
  module.reduce = random_transfer(random, 20);
  module.publish = random_transfer(random, 20);
  if (random.between(0, 3) > 0) return module;
  module.reduce_across = random_transfer(random, 20);
  module.publish_inside = random_transfer(random, 20);
  if (!module.gather.empty())
    module.gather_inside = random_transfer(random, 20);
  if (!module.scatter.empty())
    module.scatter_across = random_transfer(random, 20);
  return module;
}

// `alike`: the same module again and again, as layers are.
inline IterationWork random_work(Random& random, bool alike = false) {
  IterationWork work;
  const int32_t num_modules = random.small(1, 8);
  const ModuleWork layer = random_module(random);
  for (int32_t m = 0; m < num_modules; ++m)
    work.modules.push_back(alike ? layer : random_module(random));
  work.uses = uses_of(num_modules, random.between(0, 4) == 0);
  work.num_micro_batches = random.between(1, 4);
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

// Seconds of all forward and backward passes of an iteration.
inline double all_compute(const IterationWork& work) {
  double sum = 0;
  for (const ModuleUse& use : work.uses) {
    const ModuleWork& module = work.modules[static_cast<size_t>(use.module)];
    if (use.beside) continue;
    sum += use.pass == PassKind::kForward ? module.forward_seconds
                                          : module.backward_seconds;
  }
  return sum * static_cast<double>(work.num_micro_batches);
}

// Calls visit(transfer) for every operation of an iteration.
template <class Visit>
void each_transfer(const IterationWork& work, Visit visit) {
  for (const ModuleUse& use : work.uses) {
    const ModuleWork& module = work.modules[static_cast<size_t>(use.module)];
    const bool completes = use.pass == PassKind::kBackward && !use.beside;
    for (int64_t i = 0; i < work.num_micro_batches; ++i) {
      visit(module.gather);
      visit(module.gather_inside);
      if (!completes) continue;
      visit(module.scatter);
      visit(module.scatter_across);
    }
    if (completes) {
      visit(module.reduce);
      visit(module.reduce_across);
      visit(module.publish);
      visit(module.publish_inside);
    }
  }
}

}  // namespace canzona

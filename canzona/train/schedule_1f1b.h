// The order in which a pipeline stage works on its micro-batches: one forward,
// one backward (1F1B). A stage runs ahead by as many forwards as there are
// stages behind it, then takes turns, so that it never holds the activations
// of more micro-batches than that plus one.
//
//   for (const StageTask& task : schedule_1f1b(stage, stages, 8)) …
//
// Stage 1 of 3 with 4 micro-batches: F0 F1 B0 F2 B1 F3 B2 B3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/model/decoder_config.h"
#include "canzona/model/parallel.h"

namespace canzona {

// Micro-batches [micro_batch, micro_batch + count), all through one layer
// before the next.
struct StageTask {
  bool forward = true;
  int64_t micro_batch = 0;
  int64_t count = 1;
  friend bool operator==(const StageTask&, const StageTask&) = default;
};

std::vector<StageTask> schedule_1f1b(int64_t stage, int64_t num_stages,
                                     int64_t num_micro_batches);

// Forwards that follow each other at the beginning, and backwards at the end,
// two and two: F0F1 B0 F2 B1 F3 B2B3. Forwards are paired from the first on,
// backwards from the last, so that all stages have the same pairs. No more
// micro-batches are in flight than before; nothing can be stuck: the forwards
// before a stage's first backward need no backward, and the backwards after its
// last forward are waited for by no forward.
std::vector<StageTask> pair_neighbours(std::span<const StageTask> tasks);

// The most micro-batches between forward and backward at once.
int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches);
// The most micro-batches in one backward; 1 if there is none.
int64_t most_together(std::span<const StageTask> tasks);
// Returns how often a gradient is announced: once for each backward.
int64_t num_announcements(std::span<const StageTask> tasks);

// The modules (plan/schedule/modules.h) that a pipeline stage waits for in a
// step or an evaluation, in order: what a runtime gathers that keeps a part of
// the parameters alone.
//
//   const StageModules modules = stage_modules(config, parallel);
//   runtime.begin_step(module_uses(modules, tasks), num_announcements(tasks));
//
// A micro-batch uses the modules of its stage forwards and then backwards; a
// tied head uses the embedding beside its own, where the stage has both.
// Otherwise the stage of the embedding uses that once more, at first, to lend
// it. Pure.

// The modules that a stage has of the model.
struct StageModules {
  int32_t first_layer = 0;
  int32_t num_layers = 0;
  int32_t layers_of_model = 0;
  bool has_embedding = true;
  bool has_head = true;
  bool tied = false;
};

StageModules stage_modules(const DecoderConfig& config,
                           const Parallel& parallel);

std::vector<int32_t> module_uses(const StageModules& modules,
                                 std::span<const StageTask> tasks);
std::vector<int32_t> evaluation_uses(const StageModules& modules,
                                     int64_t num_micro_batches);

}  // namespace canzona

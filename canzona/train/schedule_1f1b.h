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

#include "canzona/plan/schedule/iteration.h"

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

// Pairs the forwards that follow each other at the beginning and the backwards
// at the end: F0F1 B0 F2 B1 F3 B2B3. Forwards are paired from the first on,
// backwards from the last, so that all stages have the same pairs. No more
// micro-batches are in flight than before. It cannot deadlock: the forwards
// before a stage's first backward need no backward, and no forward waits for
// the backwards after its last forward.
std::vector<StageTask> pair_neighbours(std::span<const StageTask> tasks);

// Returns the largest number of micro-batches between forward and backward at
// once.
int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches);
// Returns the largest number of micro-batches in one backward; 1 if there is
// none.
int64_t most_together(std::span<const StageTask> tasks);
// Returns how often a gradient is announced: once for each backward.
int64_t num_announcements(std::span<const StageTask> tasks);

// The calls of a pipeline stage that executes tasks; the schedule
// (plan/schedule/iteration.h) says what a rank then does, in order.
//
//   const auto calls = stage_calls(plan.model, plan.mesh, stage, tasks);
//   runtime.begin_iteration(waited_modules(calls), num_announcements(tasks));
//
// A stage that has a tied embedding but not the head first uses it once more,
// to lend it to the head's stage.
std::vector<TrainerCall> stage_calls(const Model& model, const Mesh& mesh,
                                     int32_t stage,
                                     std::span<const StageTask> tasks);
// Returns the modules that the calls wait for, in order.
std::vector<int32_t> waited_modules(std::span<const TrainerCall> calls);

}  // namespace canzona

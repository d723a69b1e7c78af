// The iteration of one rank: all operations in issue order, each with its
// group, its bytes and its slot.
//
//   const std::vector<ScheduleEntry> all =
//       iteration_of(plan, rank, usual_calls(plan, stage, micro_batches));
//   for (const ScheduleEntry& o : all) … describe(plan, o) …
//
// The order follows from the plan and from the order of the trainer's calls
// alone, so that it is the same on all members of every group: a gather stands
// where the slot that it takes is given back, a sum where its bucket is
// complete, an exchange where the step's pipeline has a slot for it. Forward
// and backward appear as the points at which the trainer calls. Whoever issues
// from one thread takes the list as it stands; whoever has a thread for each
// kind of work (issuer_of) takes its own entries of it. The runtime makes the
// same entries (entries.h) and gives out the same slots (modules.h) as
// the calls come. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/entries.h"

namespace canzona::plan {

// Returns the calls of a trainer that runs through all modules of a stage once
// for each of `passes`, and then steps. A tied head also uses the embedding, if
// the stage has both.
enum class Direction { kForward, kBackward };
std::vector<TrainerCall> calls_of(const Model& model, const Mesh& mesh,
                                  int32_t stage,
                                  std::span<const Direction> passes);
// The same with forward and backward for every micro-batch.
std::vector<TrainerCall> usual_calls(const Plan& plan, int32_t stage,
                                     int64_t num_micro_batches);

// A use of a module: a wait for it, and what the later calls do with it.
struct ModuleUse {
  int32_t module = 0;
  bool is_backward = false;
  // True if the module is read by the next use (the embedding of a tied head).
  // It has no compute of its own, is kept as long as the next use, and its
  // gradient is not complete yet.
  bool is_beside = false;
  bool is_last = false;  // completes the module's gradient of the iteration

  // True if this use completes the module's gradient of a micro-batch.
  bool completes() const { return is_backward && !is_beside; }
  friend bool operator==(const ModuleUse&, const ModuleUse&) = default;
};
std::vector<ModuleUse> uses_of(std::span<const TrainerCall> calls);

// `rank` is a rank of the whole plan.
std::vector<ScheduleEntry> iteration_of(const Plan& plan, int32_t rank,
                                        std::span<const TrainerCall> calls);

}  // namespace canzona::plan

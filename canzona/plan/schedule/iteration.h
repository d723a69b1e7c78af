// What one rank does in an iteration: every operation, in the order in which it
// is issued, with its group, its bytes and the slot that it takes.
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
// kind of work (issuer_of) takes its own entries of it. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/schedule/entry_kind.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/wire_bytes.h"

namespace canzona {

// What a trainer asks of a rank, in order: wait, compute, release for each use
// of a module; gradients of a whole module at once; the step at the end.
struct TrainerCall {
  enum class Kind { kWaitParams, kReleaseParams, kGradReady, kStep };
  Kind kind = Kind::kStep;
  int32_t module = -1;
};
// Forward and backward through all modules of a stage, micro-batch by
// micro-batch, then the step.
std::vector<TrainerCall> usual_calls(const Plan& plan, int32_t stage,
                                     int64_t num_micro_batches);

// A piece of a pool that is taken by an operation and given back by another.
struct SlotUse {
  int32_t slot = -1;   // number in its pool; -1: none
  int32_t freed = -1;  // the operation after which it is free
};

struct ScheduleEntry {
  EntryKind kind = EntryKind::kCall;
  Purpose purpose = Purpose::kNone;
  TrainerCall call = {};  // of kCall
  int32_t part = 0;       // of the plan
  int32_t module = -1;
  int32_t bucket = -1;  // of the part
  int32_t round = -1;   // micro-group
  int64_t micro_batch = -1;
  GroupKind group = GroupKind::kAll;
  RankGroup ranks = {};  // of the part: the group, or one level of it
  // Bytes of each member's piece; of an all-to-all what goes to each.
  std::vector<int64_t> counts = {};
  WireBytes bytes = {};
  SlotUse slot = {};
};

// `rank`: of the whole plan.
std::vector<ScheduleEntry> iteration_of(const Plan& plan, int32_t rank,
                                        std::span<const TrainerCall> calls);

// Who issues a collective where every kind of work has a thread of its own;
// empty: the thread that computes.
std::string_view issuer_of(const ScheduleEntry& entry);

// "all-gather layer 3"
std::string describe(const Plan& plan, const ScheduleEntry& operation);

}  // namespace canzona

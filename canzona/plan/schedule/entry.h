// One operation of the schedule: who takes part, which bytes, where they lie.
//
//   for (const ScheduleEntry& e : iteration_of(plan, rank, calls))
//     … describe(plan, e), e.ranks, e.bytes.sent() …
//
// Reports print entries, the runtime carries them out (rank_entries.h), traces
// and errors call them by the same words. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/kept.h"

namespace canzona {

// A trainer calls a rank in this order: wait, compute, release for each use of
// a module; gradients of a whole module at once; the step at the end.
struct TrainerCall {
  enum class Kind { kWaitParams, kReleaseParams, kGradReady, kStep };
  Kind kind = Kind::kStep;
  int32_t module = -1;
};

// A piece of a pool that is taken by an operation and given back by another.
struct SlotUse {
  int32_t slot = -1;   // number in its pool; -1: none
  int32_t freed = -1;  // the operation after which it is free
};

// Kind, purpose and group are those of the collective that it is.
struct ScheduleEntry : BucketCollective {
  TrainerCall call = {};  // of kCall
  int32_t part = 0;       // of the plan
  int32_t module = -1;
  int32_t bucket = -1;  // of the part
  int32_t tensor = -1;  // of the part: the one that is broadcast
  int32_t round = -1;   // micro-group
  int32_t table = 0;    // which of the round's exchanges (Round::tables)
  int32_t shared = -1;  // which of the round's shared matrices
  int32_t matrix = -1;  // of the part: that one, or one of strips
  int32_t segment = 0;  // of its transform
  // Of strips that go one by one: the strip, or, of an exchange, the number of
  // it among those of its round.
  int32_t strip = -1;
  int64_t micro_batch = -1;
  RankGroup ranks = {};  // of the part: the group, or one level of it
  // Bytes of each member's piece; of an all-to-all what goes to each.
  std::vector<int64_t> counts = {};
  // At one level of runs: bytes of every piece of the whole group.
  std::vector<int64_t> pieces_of_all = {};
  WireBytes bytes = {};
  // The extents in the rank's flat buffer or its staging, in elements: all that
  // goes round, and this rank's own. Modules are whole in a slot instead.
  Extent all = {}, own = {};
  int64_t worked_on = 0;  // bytes that a stage of compute reads or writes
  SlotUse slot = {};
};

// "all-gather"
std::string_view word_of(EntryKind kind);
// "layer 3", "micro-group 0", "bucket 7, experts 0": what errors, traces and
// flight records call it.
std::string label_of(const PlanPart& part, const ScheduleEntry& entry);
// "all-gather layer 3": both.
std::string describe(const Plan& plan, const ScheduleEntry& entry);
// Bytes of rank `rank` of the part where elements of sums travel in so many
// bytes (4, or 2 as bf16); what is gathered of sums is fp32, and so are sums of
// a node on their way across.
WireBytes wire_bytes_of(const PlanPart& part, int32_t rank,
                        const ScheduleEntry& entry, int64_t gradient_bytes);
// Returns the bytes that the rank sends in it, or that a stage of compute works
// on.
int64_t bytes_of(const PlanPart& part, int32_t rank, const ScheduleEntry& entry,
                 int64_t gradient_bytes);
// "a.weight … z.weight (7 tensors)": the tensors that it is about, all of a
// bucket, those of a micro-group or an update that this rank has anything of.
std::string names_of(const PlanPart& part, const Kept& kept,
                     const ScheduleEntry& entry);

// Names the thread that issues a collective if every kind of work has a thread
// of its own; empty: the thread that computes.
std::string_view issuer_of(const ScheduleEntry& entry);

}  // namespace canzona

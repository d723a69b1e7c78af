// One operation of the schedule: who takes part, which bytes move, and where
// they lie.
//
//   for (const ScheduleEntry& e : iteration_of(plan, rank, calls))
//     … describe(plan, e), e.ranks, e.bytes.sent() …
//
// Reports print entries, the runtime executes them (rank_entries.h), and traces
// and errors use the same names. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/kept.h"

namespace canzona {

// The calls of a trainer on a rank: wait, compute and release for each use of a
// module; all gradients of a module at once; the step at the end.
struct TrainerCall {
  enum class Kind { kWaitParams, kReleaseParams, kGradReady, kStep };
  Kind kind = Kind::kStep;
  int32_t module = -1;
};

// A slot of a pool that one operation takes and another gives back.
struct SlotUse {
  int32_t slot = -1;   // number in its pool; -1: none
  int32_t freed = -1;  // the operation after which it is free
};

// Kind, purpose and group are those of the entry's collective.
struct ScheduleEntry : BucketCollective {
  TrainerCall call = {};  // only for kCall
  int32_t part = 0;       // of the plan
  int32_t module = -1;
  int32_t bucket = -1;  // of the part
  int32_t tensor = -1;  // of the part: the tensor to broadcast
  int32_t round = -1;   // micro-group
  int32_t table = 0;    // which of the round's exchanges (Round::tables)
  int32_t shared = -1;  // which of the round's shared matrices
  int32_t matrix = -1;  // of the part: the shared matrix, or the one moved by
                        // strips
  int32_t segment = 0;  // of its transform
  // The ranks of the part that share the matrix, the head first, and whether
  // the second of two is a helper.
  std::vector<int32_t> team = {};
  bool has_helper = false;
  // For strip-by-strip exchanges: the strip, or, for an exchange, its number
  // among those of the round.
  int32_t strip = -1;
  int64_t micro_batch = -1;
  RankGroup ranks = {};  // of the part: the group, or one level of it
  // Bytes of each member's piece; for an all-to-all, bytes sent to each.
  std::vector<int64_t> counts = {};
  // At one level of runs: bytes of every piece of the whole group.
  std::vector<int64_t> pieces_of_all = {};
  WireBytes bytes = {};
  // Extents in the rank's flat buffer or its staging area, in elements: the
  // whole data of the collective, and this rank's own. Modules are whole in a
  // slot instead.
  Extent all = {}, own = {};
  int64_t worked_on = 0;  // bytes that a stage of compute reads or writes
  SlotUse slot = {};
};

// Returns e.g. "all-gather".
std::string_view word_of(EntryKind kind);
// Returns the name used by errors, traces and flight records: "layer 3",
// "micro-group 0", "bucket 7, experts 0". Ranks in it are those of the whole
// plan, as errors number them: "q, team (6, 4, 5, 7)", "q, owner 6, helper 4".
std::string label_of(const PlanPart& part, const ScheduleEntry& entry);
// Returns both: "all-gather layer 3".
std::string describe(const Plan& plan, const ScheduleEntry& entry);
// Returns the bytes of rank `rank` of the part if elements of sums travel in
// `gradient_bytes` (4, or 2 as bf16). The gathered results of sums are fp32,
// and so are a node's sums that travel across nodes.
WireBytes wire_bytes_of(const PlanPart& part, int32_t rank,
                        const ScheduleEntry& entry, int64_t gradient_bytes);
// Returns the bytes that the rank sends, or that a stage of compute works on.
int64_t bytes_of(const PlanPart& part, int32_t rank, const ScheduleEntry& entry,
                 int64_t gradient_bytes);
// Returns e.g. "a.weight … z.weight (7 tensors)": all tensors of a bucket, or
// those of a micro-group or an update of which this rank has a piece.
std::string names_of(const PlanPart& part, const Kept& kept,
                     const ScheduleEntry& entry);

// Returns the name of the thread that issues a collective if every kind of work
// has its own thread; empty for the compute thread.
std::string_view issuer_of(const ScheduleEntry& entry);

}  // namespace canzona

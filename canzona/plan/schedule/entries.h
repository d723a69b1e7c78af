// The entries of a schedule: every operation, with who takes part, which bytes
// move and where they lie, and those of one part on one rank, made once, to be
// listed (iteration.h) or executed.
//
//   const RankEntries entries(part, rank, layout, kept, rounds);
//   for (const ScheduleEntry& e : entries.of_bucket(b).sums) …
//   for (const ScheduleEntry& e : entries.step()) …
//     … describe(plan, e), e.ranks, e.bytes.sent() …
//
// Reports print entries, the runtime executes them, and traces and errors use
// the same names. Groups, counts, bytes, memory and the order of the step are
// decided here. The trainer's calls decide the rest, which the iteration says:
// which module's turn it is, and which slot it gets (modules.h). Made from the
// plan alone; no memory is touched. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/plan/schedule/rounds.h"

namespace canzona::plan {

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
  int32_t matrix = -1;  // of the part: the shared matrix
  int32_t segment = 0;  // of its transform
  // The ranks of the part that share the matrix, the head first, and whether
  // the second of two is a helper.
  std::vector<int32_t> team = {};
  bool has_helper = false;
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
  // An all-to-all has extents of the round's slot, or of the rooms of teams.
  ExchangeTable exchange = {};
  // The collectives of the step that must have ended, by their place in its
  // list. A wait has one.
  std::vector<int32_t> after = {};
  // Used for given storage: the number of its ranks among the schedule's
  // groups, the rank that broadcasts, its name, and its tensors.
  int32_t ranks_of = -1;
  int32_t root = -1;
  std::string label = {};
  std::vector<int32_t> tensors = {};

  bool is_compute() const {
    return !is_collective(kind) && kind != EntryKind::kWait;
  }
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

// Returns the stages of a step with this many rounds, in order. Two gathers are
// issued ahead of each transform, and a slot is reused once its round is
// applied. With more than four slots, a round may be applied one transform
// later.
struct ExchangeStage {
  EntryKind kind;  // kPrepare, kAllToAll, kTransform or kApply
  Purpose purpose = Purpose::kNone;
  int32_t round = 0;
};
std::vector<ExchangeStage> exchange_order(int32_t num_rounds,
                                          int32_t num_slots = kExchangeSlots);

class RankEntries {
 public:
  RankEntries(const PlanPart& part, int32_t rank, const RankLayout& layout,
              const Kept& kept, const std::vector<Round>& rounds);

  // Each list is in execution order.
  struct OfBucket {
    std::vector<ScheduleEntry> gathers, scatters;  // as part of a module
    // Bytes of each member's piece in the whole group, whatever its levels.
    std::vector<int64_t> gathered, scattered;
    std::vector<ScheduleEntry> sums, publishes;
  };
  // Indexed by bucket of the rank.
  const OfBucket& of_bucket(size_t bucket) const { return buckets_[bucket]; }
  // The entries from the check of gradients to the last update, without the
  // parameters that are published meanwhile. AdamW's elements are updated while
  // the first round is gathered.
  const std::vector<ScheduleEntry>& step() const { return step_; }

 private:
  void add_bucket(size_t b);
  void add(const BucketCollective& collective, size_t b, BucketPieces& pieces,
           std::vector<ScheduleEntry>& out) const;
  void add_broadcasts(const BucketCollective& collective, size_t b,
                      std::vector<ScheduleEntry>& out) const;
  // Returns the index of a home among the collective's ranks; -1 if it has
  // another position in its node and sends nothing across nodes to this rank.
  int32_t root_at_level(const BucketCollective& collective, int32_t home) const;

  const PlanPart& part_;
  const int32_t rank_;
  const RankLayout& layout_;
  std::vector<OfBucket> buckets_;
  std::vector<ScheduleEntry> step_;
};

}  // namespace canzona::plan

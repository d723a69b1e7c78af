// The entries of one part on one rank, made once, to be listed (iteration.h) or
// executed.
//
//   const RankEntries entries(part, rank, layout, kept, rounds);
//   for (const ScheduleEntry& e : entries.of_bucket(b).sums) …
//   for (const ScheduleEntry& e : entries.step()) …
//
// Groups, counts, bytes, memory and the order of the step are decided here.
// The trainer's calls decide the rest, which the iteration says: which module's
// turn it is, and which slot it gets (pools.h). Made from the plan alone;
// no memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/entry.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/schedule/rounds.h"

namespace canzona {

struct TransformStage;  // team_schedule.h

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
  void add_step();
  void add_stage(const ExchangeStage& stage);
  void add_compute(EntryKind kind, int64_t elements, int32_t round = -1);
  void add_exchanges(Purpose purpose, int32_t round);
  void add_table(Purpose purpose, int32_t round, int32_t table);
  ScheduleEntry& add_exchange(Purpose purpose, int32_t round,
                              const ExchangeTable& table);
  // Adds the stages of the home's teams in a round, interleaved with what this
  // rank does alone.
  void add_transforms(int32_t round);
  void add_transform(int32_t round, int32_t segment);
  void add_shared(int32_t round, const TransformStage& stage);
  // Add what a rank does with the matrix that it exchanges strip by strip in a
  // round: up to the last factor, and from there on, with the exchanges in
  // which its strips are scattered.
  void add_sums_of_strips(int32_t round);
  void add_strips_that_leave(int32_t round);
  void add_strip(EntryKind kind, int32_t round, int32_t strip,
                 int64_t elements);

  const PlanPart& part_;
  const int32_t rank_;
  const RankLayout& layout_;
  const Kept& kept_;
  const std::vector<Round>& rounds_;
  std::vector<OfBucket> buckets_;
  std::vector<ScheduleEntry> step_;
};

}  // namespace canzona

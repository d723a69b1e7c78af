// Parameters of modules on their way in: before each use of a module the slices
// of its tensors (plan/zero.h) are gathered into a slot of a pool, by a courier
// of its own, in the order in which the modules will be used.
//
//   gatherer.begin(uses);                 // what the next step uses, in order
//   gatherer.wait(module);                // compute needs it now
//   float* w = gatherer.parameter(tensor);
//   gatherer.release(module);             // its slot is free again
//
// Each gather is the schedule's entries of the module's buckets
// (plan/schedule/rank_entries.h), and which use gets which slot is decided
// there, too (pools.h). Gathers are posted as far ahead as there are free
// slots (background), one use ahead of compute (main), or not at all (none).
// Compute waits for uses in order, and a gather is posted when its slot is
// free: no circle of waits. On a lane a slot is free at once, and the next
// gather into it happens after what compute was told before the release.
//
// One thread calls, beside the courier.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/pools.h"
#include "canzona/runtime/bucket_traffic.h"

namespace canzona {

class Gatherer {
 public:
  Gatherer(Rank& rank, Publisher& publisher);

  const std::vector<Message>& messages() const { return messages_; }

  bool has(int32_t module) const;
  // UsageError unless all uses announced before are over.
  void begin(std::span<const int32_t> uses);
  // UsageError if another module's turn has come, or compute itself holds the
  // slot that it would wait for.
  void wait(int32_t module);
  std::byte* parameter(int32_t tensor) const;
  void release(int32_t module);
  // UsageError unless all uses are over: parameters are about to change.
  void require_over() const;

  std::chrono::nanoseconds busy() const { return courier_.busy(); }
  const SlotPool& pool() const { return uses_.pool(); }

 private:
  // Returns the first of all uses that may not be gathered yet.
  int64_t horizon() const;
  void post_ahead();
  void hold_back(const ModuleUses::Use& use);
  void require_module(const char* call, int32_t module) const;
  void require_room(int32_t module) const;
  void release_slot(int64_t slot);
  void gather(const ModuleUses::Use& use, int64_t id);
  void gather_bucket(int32_t bucket, std::byte* slot);
  void carry_out(const ShownEntry& shown, std::span<const int64_t> bytes,
                 std::span<std::byte> arrival);

  Rank& rank_;
  Publisher& publisher_;
  const ModuleTable& table_;
  const std::vector<Message> messages_;           // by bucket
  std::vector<std::vector<ShownEntry>> entries_;  // by bucket
  std::vector<int64_t> slot_of_module_;           // as compute uses it
  ModuleUses uses_;                               // of this step
  std::vector<Work> gathers_;                     // by use that is posted
  // By slot, where compute has a lane: what it was told at the release.
  std::vector<std::unique_ptr<Mark>> released_;
  int64_t num_before_ = 0;  // uses of all steps before
  int64_t num_asked_ = 0;   // of this step: waited for
  int64_t num_released_ = 0;
  Courier courier_;  // last, because its thread uses all the others
};

}  // namespace canzona

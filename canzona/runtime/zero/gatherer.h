// Gathers parameters by module: before each use of a module, its own courier
// gathers the slices of its tensors (plan/zero.h) into a slot of a pool, in the
// order in which the modules will be used.
//
//   gatherer.begin(uses);                 // uses of the next step, in order
//   gatherer.wait(module);                // compute needs it now
//   float* w = gatherer.parameter(tensor);
//   gatherer.release(module);             // frees its slot
//
// Each gather is the schedule's entries of the module's buckets
// (plan/schedule/entries.h), and which use gets which slot is decided
// there, too (modules.h). Gathers are posted as far ahead as there are free
// slots (background), one use ahead of compute (main), or not at all (none).
// Compute waits for uses in order, and a gather is posted when its slot is
// free: no circle of waits. On a lane a slot is free at once, and the next
// gather into it happens after what compute was told before the release.
//
// Called by one thread; the courier has its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/bucket_traffic.h"

namespace canzona {

class Gatherer {
 public:
  Gatherer(Rank& rank, Publisher& publisher);

  const std::vector<Message>& messages() const { return messages_; }

  bool has(int32_t module) const;
  // Throws UsageError unless all uses announced before are over.
  void begin(std::span<const int32_t> uses);
  // Throws UsageError if it is another module's turn, or compute itself holds
  // the slot that it would wait for.
  void wait(int32_t module);
  std::byte* parameter(int32_t tensor) const;
  void release(int32_t module);
  // Throws UsageError unless all uses are over: parameters are about to change.
  void require_over() const;

  std::chrono::nanoseconds busy() const { return courier_.busy(); }
  const SlotPool& pool() const { return uses_.pool(); }

 private:
  // Returns the first use, over all steps, that may not be gathered yet.
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
  std::vector<int64_t> slot_of_module_;           // the slot compute uses
  ModuleUses uses_;                               // of this step
  std::vector<Work> gathers_;                     // by posted use
  // By slot, where compute has a lane: marks the release.
  std::vector<std::unique_ptr<Mark>> released_;
  int64_t num_before_ = 0;  // uses in all earlier steps
  int64_t num_asked_ = 0;   // uses of this step waited for so far
  int64_t num_released_ = 0;
  Courier courier_;  // last, because its thread uses all the others
};

}  // namespace canzona

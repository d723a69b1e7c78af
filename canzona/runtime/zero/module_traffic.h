// Modules on their way: parameters gathered before each use of a module, and
// its gradients scattered after each micro-batch, over the ranks that store the
// slices of its tensors (plan/zero.h). The collectives are the schedule's
// entries of the module's buckets (plan/schedule/entries.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/zero/bucket_traffic.h"

namespace canzona::runtime {

// Gathers parameters by module: before each use of a module, its own courier
// gathers the slices of its tensors into a slot of a pool, in the order in
// which the modules will be used.
//
//   gatherer.begin(uses);                 // uses of the next step, in order
//   gatherer.wait(module);                // compute needs it now
//   float* w = gatherer.parameter(tensor);
//   gatherer.release(module);             // frees its slot
//
// Which use gets which slot is decided by the plan (plan/schedule/modules.h).
// Gathers are posted as far ahead as there are free slots (background), one use
// ahead of compute (main), or not at all (none). Compute waits for uses in
// order, and a gather is posted when its slot is free: no circle of waits. On a
// lane a slot is free at once, and the next gather into it happens after what
// compute was told before the release.
//
// Called by one thread; the courier has its own.
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

// Scatters gradients by module: the model adds a micro-batch's gradient of a
// module into a slot of a pool. When all its tensors are announced, a courier
// reduces and scatters it over the ranks that store its slices (plan/zero.h),
// and the slot is freed. The first slice of an iteration replaces that of the
// previous iteration, later ones are added to it. After the last micro-batch
// the bucket is complete. The collectives are the schedule's entries
// (plan/schedule/entries.h).
//
//   float* g = scatterer.gradient(tensor);   // waits while no slot is free
//   scatterer.ready(tensor);
//   scatterer.finish();                      // the whole step is added
//
// Modules are sent in the order in which compute completes them, the same on
// every rank. The courier frees slots without waiting for compute, so compute
// that waits for a slot continues if it does not hold all of them. On a lane a
// slot is free as soon as its parcel is issued, and compute is ordered after
// that.
//
// The sums of a bucket follow its last module, on the courier's thread or on
// the same lane.
//
// Called by one thread; the courier has its own.

// Slots are released by the thread that scatters.
using SharedSlotPool = BasicSlotPool<std::atomic<uint8_t>>;

class Scatterer {
 public:
  // `messages`: those of gradients, by bucket.
  Scatterer(Rank& rank, Reducer& reducer, std::vector<Message> messages);

  // Sets how often each tensor is announced in an iteration.
  void expect(int64_t num_micro_batches);
  // Starts a new iteration.
  void begin();
  // Throws UsageError if compute itself holds all slots.
  float* gradient(int32_t tensor);
  void ready(int32_t tensor);
  void finish();

  std::chrono::nanoseconds busy() const { return courier_.busy(); }
  const SharedSlotPool& pool() const { return pool_; }

 private:
  struct Module {
    int64_t slot = -1;  // the one compute adds into
    int32_t num_missing = 0;
    int64_t num_done = 0;                    // micro-batches
    bool replaced = false;                   // slices are this iteration's
    std::vector<uint8_t> announced;          // by tensor of the module
    std::vector<Engine::Stretch> stretches;  // of its current slot

    // Starts a new micro-batch.
    void restart() {
      num_missing = static_cast<int32_t>(announced.size());
      std::ranges::fill(announced, uint8_t{0});
    }
  };
  struct Parcel {
    int32_t module = 0;
    int64_t slot = 0;
    bool first = false;  // in the iteration
    bool last = false;
  };

  void restart_counts();
  void forget_slices(int32_t module);
  void require_room(int32_t module) const;
  void wait_for_slot(int32_t module);
  void take_slot(int32_t module);
  void hand_over(int32_t module, bool last);
  void wait_until_done(Work work);
  // Rethrows the error of a parcel; every later parcel carries it.
  void rethrow() {
    if (leaving_.back().done()) leaving_.back().wait();
  }
  void scatter(const Parcel& parcel);
  void scatter_bucket(const Parcel& parcel, int32_t bucket);
  void carry_out(const ShownEntry& shown, std::span<const int64_t> counts,
                 std::span<std::byte> sent);

  Rank& rank_;
  Reducer& reducer_;
  const ModuleTable& table_;
  const std::vector<Message> messages_;           // by bucket
  std::vector<std::vector<ShownEntry>> entries_;  // by bucket
  std::vector<std::vector<int64_t>> counts_;      // elements, by bucket
  std::vector<Module> modules_;
  std::vector<size_t> number_in_module_;  // by tensor
  int64_t num_micro_batches_ = 1;
  SharedSlotPool pool_;
  std::vector<Work> leaving_;   // the last parcels, one per slot
  std::vector<Work> last_use_;  // by slot: the parcel that used it
  Courier courier_;             // last, because its thread uses all the others
};

}  // namespace canzona::runtime

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
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/bucket_traffic.h"

namespace canzona {

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

}  // namespace canzona

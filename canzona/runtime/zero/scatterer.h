// Gradients of modules on their way out: the model adds a micro-batch's
// gradient of a module into a slot of a pool; when all its tensors are
// announced, a courier of its own reduces and scatters it over the ranks that
// keep its slices (plan/zero.h) and the slot is free: the first slice of an
// iteration replaces what is left of the one before, later ones are added to
// it. After the last micro-batch the bucket is complete. The collectives are
// the schedule's entries (plan/schedule/rank_entries.h).
//
//   float* g = scatterer.gradient(tensor);   // waits while no slot is free
//   scatterer.ready(tensor);
//   scatterer.finish();                      // all of the step is added
//
// Modules leave in the order in which compute completes them, the same on every
// rank. Slots are freed by the courier without waiting for compute, so compute
// that waits for a slot goes on if it holds fewer than there are. On a lane a
// slot is free as soon as its parcel is issued, and compute takes it after
// that.
//
// The sums of a bucket follow its last module: on the thread of the courier, or
// on the same lane.
//
// One thread calls, beside the courier.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/pools.h"
#include "canzona/runtime/bucket_traffic.h"

namespace canzona {

// Slots are given back by the thread that scatters.
using SharedSlotPool = BasicSlotPool<std::atomic<uint8_t>>;

class Scatterer {
 public:
  // `messages`: of gradients, by bucket.
  Scatterer(Rank& rank, Reducer& reducer, std::vector<Message> messages);

  // Sets how often each tensor is announced in an iteration.
  void expect(int64_t num_micro_batches);
  // A new iteration begins.
  void begin();
  // UsageError if compute itself holds all slots.
  float* gradient(int32_t tensor);
  void ready(int32_t tensor);
  void finish();

  std::chrono::nanoseconds busy() const { return courier_.busy(); }
  const SharedSlotPool& pool() const { return pool_; }

 private:
  struct Module {
    int64_t slot = -1;  // where compute adds
    int32_t num_missing = 0;
    int64_t num_done = 0;                    // micro-batches
    bool replaced = false;                   // slices are this iteration's
    std::vector<uint8_t> announced;          // by tensor of the module
    std::vector<Engine::Stretch> stretches;  // of the slot it has

    // A new micro-batch begins.
    void restart() {
      num_missing = static_cast<int32_t>(announced.size());
      std::ranges::fill(announced, uint8_t{0});
    }
  };
  struct Parcel {
    int32_t module = 0;
    int64_t slot = 0;
    bool first = false;  // of the iteration
    bool last = false;
  };

  void restart_counts();
  void forget_slices(int32_t module);
  void require_room(int32_t module) const;
  void wait_for_slot(int32_t module);
  void take_slot(int32_t module);
  void hand_over(int32_t module, bool last);
  void wait_until_done(Work work);
  // Throws what a parcel has thrown, of which all later ones know.
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
  std::vector<Work> leaving_;   // the last parcels, as many as slots
  std::vector<Work> last_use_;  // by slot: the parcel that had it
  Courier courier_;             // last, because its thread uses all the others
};

}  // namespace canzona

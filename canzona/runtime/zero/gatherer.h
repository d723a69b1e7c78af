// Parameters of modules on their way in: before each use of a module the slices
// of its tensors (plan/zero.h) are gathered into a slot of a pool, by a thread
// of its own, in the order in which the modules will be used.
//
//   gatherer.begin(uses);                 // what the next step uses, in order
//   gatherer.wait(module);                // compute needs it now
//   float* w = gatherer.parameter(tensor);
//   gatherer.release(module);             // its slot is free again
//
// The thread goes ahead as far as there are free slots (background), one use
// ahead of compute (main), or not at all (none). Slots are given to uses in
// turn, so that one is free when the use that far back is released.
// Compute waits for uses in order, and the thread for slots of earlier uses
// only: no circle of waits.
//
// One thread calls, beside the gatherer's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "canzona/runtime/publisher.h"
#include "canzona/runtime/zero/message.h"
#include "canzona/runtime/zero/slot_pool.h"

namespace canzona {

class Gatherer {
 public:
  Gatherer(Rank& rank, Publisher& publisher);
  ~Gatherer();

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
  // Ends the thread; an operation under way ends first.
  void close();

  double busy() const;  // seconds in operations
  int64_t most_slots_used(bool large) const;
  int64_t num_slots_used() const;  // now

 private:
  int64_t slot_of(int64_t use) const {
    return slot_of_use_[static_cast<size_t>(use - first_use_)];
  }
  // Of all uses, the first that may not be gathered yet.
  int64_t horizon() const;
  bool can_gather();
  void require_module(const char* call, int32_t module) const;
  void require_room(int32_t module);
  void serve();
  void gather_bucket(int32_t module, int32_t bucket, std::byte* slot);

  Rank& rank_;
  Publisher& publisher_;
  const ModuleTable table_;
  std::deque<Message> messages_;                  // by bucket
  std::vector<std::vector<int64_t>> part_bytes_;  // by bucket
  std::vector<int64_t> slot_of_module_;           // as compute uses it
  Track* track_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  SlotPool pool_;
  std::vector<int64_t> use_in_slot_;  // whose parameters it has, or is getting
  std::vector<int32_t> uses_;         // of this step
  std::vector<int64_t> slot_of_use_;  // the same
  int64_t first_use_ = 0;             // numbers go on from step to step
  int64_t num_uses_ = 0;
  int64_t num_asked_ = 0;  // that compute has waited for
  int64_t num_released_ = 0;
  int64_t num_gathered_ = 0;
  int64_t busy_ = 0;  // nanoseconds
  bool closing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last, because it uses all the others
};

}  // namespace canzona

// Gradients of modules on their way out: the model adds a micro-batch's
// gradient of a module into a slot of a pool; when all its tensors are
// announced, a thread of its own reduces and scatters it over the ranks that
// keep its slices (plan/zero.h) and the slot is free: the first slice of an
// iteration replaces what is left of the one before, later ones are added to
// it. After the last micro-batch the bucket is complete.
//
//   float* g = scatterer.gradient(tensor);   // waits while no slot is free
//   scatterer.ready(tensor);
//   scatterer.finish();                      // all of the step is added
//
// Modules leave in the order in which compute completes them, the same on every
// rank. Slots are freed by the thread without waiting for compute, so compute
// that waits for a slot goes on if it holds fewer than there are.
//
// One thread calls, beside the scatterer's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "canzona/runtime/reducer.h"
#include "canzona/runtime/zero/message.h"
#include "canzona/runtime/zero/slot_pool.h"

namespace canzona {

class Scatterer {
 public:
  Scatterer(Rank& rank, Reducer& reducer);
  ~Scatterer();

  // How often each tensor is announced in an iteration.
  void expect(int64_t num_micro_batches);
  // A new iteration begins.
  void begin();
  // UsageError if compute itself holds all slots.
  float* gradient(int32_t tensor);
  void ready(int32_t tensor);
  void finish();
  void close();

  double busy() const;  // seconds in operations
  int64_t most_slots_used(bool large) const;
  int64_t num_slots_used() const;  // now

 private:
  struct Module {
    int64_t slot = -1;  // where compute adds
    int32_t num_missing = 0;
    int64_t num_done = 0;                    // micro-batches
    bool replaced = false;                   // slices are this iteration's
    std::vector<uint8_t> announced;          // by tensor of the module
    std::vector<Engine::Stretch> stretches;  // of the slot it has
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
  void take_slot(int32_t module);
  void hand_over(int32_t module, bool last);
  void look_for_nonfinite(int32_t module);
  void wait_until_done(int64_t parcels);
  void serve();
  void scatter(const Parcel& parcel);
  void scatter_bucket(const Parcel& parcel, int32_t bucket);
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  Rank& rank_;
  Reducer& reducer_;
  const ModuleTable table_;
  std::deque<Message> messages_;  // by bucket
  std::vector<Module> modules_;
  std::vector<size_t> number_in_module_;  // by tensor
  int64_t num_micro_batches_ = 1;
  Arena memory_;
  Arena::Scope whole_life_;
  int32_t* found_ = nullptr;
  Track* track_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  SlotPool pool_;
  std::vector<Parcel> queue_;  // cyclic, as many as slots
  int64_t num_handed_ = 0;
  int64_t num_done_ = 0;
  int64_t busy_ = 0;  // nanoseconds
  bool closing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last, because it uses all the others
};

}  // namespace canzona

// Memory that modules pass through on a rank of a stage (zero.h): slots for
// those in use or on their way, and staging for messages.
//
//   PoolSizes pools = pool_sizes(part, stage);
//
// A module (modules.h) is gathered before each of its uses, and its gradient
// scattered after each micro-batch. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/ranges.h"

namespace canzona {

// The slots of the micro-group exchange: two rounds gathered, one transformed,
// one scattered. Two, so that a rank whose transform takes longer does not keep
// the others waiting for what it has yet to send.
inline constexpr int64_t kExchangeSlots = 4;

// The pools of every rank of a stage, in elements. Slots hold a layer each;
// modules that are larger than the largest layer, as embeddings are, have slots
// of their own. Staging holds one message while it is sorted by ranks.
struct PoolSizes {
  int32_t gather_slots = 0;  // 0: parameters are not gathered
  int32_t scatter_slots = 0;
  int64_t slot = 0;
  int32_t large_gather_slots = 0;
  int32_t large_scatter_slots = 0;
  int64_t large_slot = 0;
  int64_t parameter_staging = 0;
  int64_t gradient_staging = 0;

  int64_t gather_bytes(int64_t bytes_per_parameter) const {
    return (gather_slots * slot + large_gather_slots * large_slot +
            parameter_staging) *
           bytes_per_parameter;
  }
  int64_t scatter_bytes() const {
    return (scatter_slots * slot + large_scatter_slots * large_slot +
            gradient_staging) *
           kBytesPerFp32;
  }
};
PoolSizes pool_sizes(const PlanPart& part, int32_t stage);

// Modules that are in use at once: with a tied head the embedding is used
// beside it.
int32_t slots_at_once(const SettledRequest& request);

// Elements of each module on a tp rank of the stage, and of a usual slot: the
// largest layer, or what else there is.
std::vector<int64_t> module_elements(const PlanPart& part, int32_t stage);
int64_t usual_slot(const std::vector<int64_t>& modules);

// True if a bucket's message lies as the model uses it, and needs no sorting.
bool is_direct(const PlanPart& part, const Bucket& bucket);
// Gathered ahead where nobody said how many, and memory is not short.
inline constexpr int32_t kUsualPrefetch = 3;
// Scatter slots beyond those in use at once, unless fewer are gathered ahead.
inline constexpr int32_t kMostScatterAhead = 2;

// Returns the bucket's module that backward reaches last and forward first.
int32_t first_module(const PlanPart& part, const Bucket& bucket);

// A SlotPool knows which slots of a pool are taken. There are two kinds, usual
// and large ones (plan/schedule/pools.h); large ones have the numbers after the
// others.
//
//   SlotPool pool(4, 1);
//   const int64_t slot = pool.take_free(false);
//   pool.release(slot);
//
// Slots of a kind are given out in turn. Numbers alone, no memory. One thread;
// with a `Flag` that is atomic one thread takes, and any may release and ask.

template <class Flag>
class BasicSlotPool {
 public:
  BasicSlotPool(int64_t num_usual, int64_t num_large)
      : kinds_{{{0, num_usual}}, {{num_usual, num_large}}},
        taken_(index(num_usual + num_large)) {}

  int64_t size() const { return std::ssize(taken_); }
  int64_t size(bool large) const { return kind(large).slots.count; }
  bool is_of(int64_t slot, bool large) const {
    return kind(large).slots.contains(slot);
  }

  // The next in turn, taken or not.
  int64_t next(bool large) {
    Kind& k = kinds_[large ? 1 : 0];
    return k.slots.first + k.num_given++ % k.slots.count;
  }
  // The next in turn that is free; there is one.
  int64_t take_free(bool large) {
    int64_t slot = next(large);
    while (is_taken(slot)) slot = next(large);
    take(slot);
    return slot;
  }

  void take(int64_t slot) {
    taken_[index(slot)] = 1;
    for (const bool large : {false, true}) {
      int64_t& most = kinds_[large ? 1 : 0].most_taken;
      most = std::max(most, num_taken(large));
    }
  }
  void release(int64_t slot) { taken_[index(slot)] = 0; }

  bool is_taken(int64_t slot) const { return taken_[index(slot)] != 0; }
  int64_t num_taken() const { return num_taken(false) + num_taken(true); }
  int64_t num_taken(bool large) const {
    const Extent& slots = kind(large).slots;
    return std::count(taken_.begin() + slots.first,
                      taken_.begin() + slots.end(), 1);
  }
  bool has_free(bool large) const { return num_taken(large) < size(large); }
  int64_t most_taken(bool large) const { return kind(large).most_taken; }

 private:
  struct Kind {
    Extent slots;
    int64_t num_given = 0;
    int64_t most_taken = 0;
  };
  const Kind& kind(bool large) const { return kinds_[large ? 1 : 0]; }

  Kind kinds_[2];
  std::vector<Flag> taken_;
};
using SlotPool = BasicSlotPool<uint8_t>;

// The uses of modules in an iteration, in order, and the slots into which they
// are gathered: in turn, so that a use waits for the one that had its slot.
//
//   uses.begin(modules, is_large);
//   while (uses.post_next()) … uses[uses.num_posted() - 1] …
//   uses.release(slot);                  // one more may be posted
//
// Allocates nothing once an iteration had as many uses. One thread.
class ModuleUses {
 public:
  struct Use {
    int32_t module = 0;
    int64_t slot = 0;
  };

  explicit ModuleUses(const PoolSizes& pools)
      : pool_(pools.gather_slots, pools.large_gather_slots) {}

  // `is_large`: by module.
  void begin(std::span<const int32_t> modules,
             std::span<const uint8_t> is_large) {
    uses_.clear();
    num_posted_ = 0;
    for (int32_t module : modules)
      uses_.push_back({module, pool_.next(is_large[index(module)] != 0)});
  }
  int64_t size() const { return std::ssize(uses_); }
  const Use& operator[](int64_t number) const { return uses_[index(number)]; }
  int64_t num_posted() const { return num_posted_; }

  // Takes the slot of the next use, if there is one and its slot is free.
  bool post_next() {
    if (num_posted_ == size()) return false;
    const int64_t slot = uses_[index(num_posted_)].slot;
    if (pool_.is_taken(slot)) return false;
    pool_.take(slot);
    ++num_posted_;
    return true;
  }
  void release(int64_t slot) { pool_.release(slot); }
  const SlotPool& pool() const { return pool_; }

 private:
  SlotPool pool_;
  std::vector<Use> uses_;
  int64_t num_posted_ = 0;
};

}  // namespace canzona

// The memory for modules on a rank of a stage (zero.h): slots for modules in
// use or in transit, and staging for messages.
//
//   PoolSizes pools = pool_sizes(part, stage);
//
// A module (modules.h) is gathered before each of its uses, and its gradient is
// scattered after each micro-batch. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/ranges.h"

namespace canzona {

// The slots of the micro-group exchange: two rounds being gathered, one being
// transformed, one being scattered. A second gather slot ensures that a rank
// with a slow transform does not delay the data it has yet to send to the
// others.
inline constexpr int64_t kExchangeSlots = 4;

// The pools of every rank of a stage, in elements. A slot holds one layer;
// modules larger than the largest layer, such as embeddings, have large slots.
// Staging holds one message while it is sorted by ranks.
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

// Returns the number of modules in use at once: a tied head is used together
// with the embedding.
int32_t slots_at_once(const SettledRequest& request);

// Return the elements of each module on a tp rank of the stage, and the size of
// a usual slot: the largest layer or, without layers, the largest module.
std::vector<int64_t> module_elements(const PlanPart& part, int32_t stage);
int64_t usual_slot(const std::vector<int64_t>& modules);

// True if a bucket's message has the layout that the model uses and needs no
// sorting.
bool is_direct(const PlanPart& part, const Bucket& bucket);
// Modules gathered ahead by default, if memory is not short.
inline constexpr int32_t kUsualPrefetch = 3;
// The most scatter slots beyond those in use at once; fewer if fewer modules
// are gathered ahead.
inline constexpr int32_t kMostScatterAhead = 2;

// Returns the bucket's module that backward reaches last and forward first.
int32_t first_module(const PlanPart& part, const Bucket& bucket);

// Tracks which slots of a pool are taken. There are usual and large slots
// (SlotPool); large ones are numbered after the usual ones.
//
//   SlotPool pool(4, 1);
//   const int64_t slot = pool.take_free(false);
//   pool.release(slot);
//
// Slots of a kind are given out in turn. Holds numbers only, no memory. One
// thread; with an atomic `Flag`, one thread may take while any thread may
// release and query.
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

  // Returns the next slot in turn, taken or not.
  int64_t next(bool large) {
    Kind& k = kinds_[large ? 1 : 0];
    return k.slots.first + k.num_given++ % k.slots.count;
  }
  // Takes the next free slot in turn. Requires a free slot.
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
// are gathered. Slots are assigned in turn, so a use waits for the previous use
// of its slot.
//
//   uses.begin(modules, is_large);
//   while (uses.post_next()) … uses[uses.num_posted() - 1] …
//   uses.release(slot);                  // one more may be posted
//
// Does not allocate unless an iteration has more uses than any before. One
// thread.
class ModuleUses {
 public:
  struct Use {
    int32_t module = 0;
    int64_t slot = 0;
  };

  explicit ModuleUses(const PoolSizes& pools)
      : pool_(pools.gather_slots, pools.large_gather_slots) {}

  // `is_large` is indexed by module.
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

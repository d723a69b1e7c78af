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
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/schedule/ranges.h"

namespace canzona {

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

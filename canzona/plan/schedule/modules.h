// Modules: their numbers and names, their bytes on the wire, the messages that
// carry them between ranks, and the memory that they pass through.
//
// A module is gathered and waited for as a unit: before each of its uses, and
// its gradient is scattered after each micro-batch. Number 0 is the embedding,
// 1 … layers are the layers, the last one is the head with everything else
// outside the layers. All of it is made from the plan alone; no memory is
// touched.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/rooms.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/ranges.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/shapes/tensor.h"

namespace canzona::plan {

inline int32_t num_modules(const Model& model) { return model.num_layers + 2; }

inline int32_t module_of(const Model& model, const Tensor& tensor) {
  if (tensor.layer >= 0) return 1 + tensor.layer;
  return tensor.role == Role::kEmbedding ? 0 : 1 + model.num_layers;
}

// True if the head shares the embedding's weights.
inline bool is_tied(const Model& model) {
  const auto has = [&](Role role) {
    return std::ranges::any_of(model.tensors,
                               [&](const Tensor& t) { return t.role == role; });
  };
  return has(Role::kEmbedding) && !has(Role::kHead);
}

// The names of modules and buckets in errors and traces: "embedding", "layer
// 3", "head"; "bucket 7" if tensors are not cut into slices.
inline std::string module_name(const Model& model, int32_t module) {
  if (module == 0) return "embedding";
  if (module == num_modules(model) - 1) return "head";
  return cat("layer ", module - 1);
}

// If tensors are cut into slices, a bucket is a module or a part of one.
inline std::string bucket_name(const PlanPart& part, int32_t bucket) {
  if (part.grid.places == 1) return cat("bucket ", bucket);
  const int32_t first =
      part.buckets[static_cast<size_t>(bucket)].tensors.front();
  return module_name(
      part.model,
      module_of(part.model, part.model.tensors[static_cast<size_t>(first)]));
}

// Counts what one rank sends and receives for each module in an iteration, by
// purpose.
//
//   const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
//   of(modules[3], Purpose::kGatherModule).sent_inter   // of one gather
//
// Gathers happen at every use of a module, scatters in every micro-batch, and
// the rest in the step. Pure.

using PurposeBytes = std::array<WireBytes, kNumPurposes>;
inline WireBytes& of(PurposeBytes& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}
inline const WireBytes& of(const PurposeBytes& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}

// Indexed by module. A bucket of several modules is counted with the first;
// modules of other stages are empty. `rank` is a rank of the part, or of the
// whole plan.
std::vector<PurposeBytes> module_bytes(const PlanPart& part, int32_t rank);
std::vector<PurposeBytes> module_bytes(const Plan& plan, int32_t rank);

// Messages carry a bucket's tensors between ranks that keep slices of them
// (zero.h). A message consists of one piece for every rank, in the layout at
// rest; a slot holds whole tensors, as the model uses them.
//
//   const ModuleTable table(part, at, layout.parameters);
//   for (const Message& m : messages_of(part, rank, table,
//                                       Resting::kParameters))
//     for (const ExtentCopy& copy : m.copies) … slot[copy.to + i] …

// The modules of a rank's stage: their buckets, and the offsets of their
// tensors in a slot.
struct ModuleTable {
  ModuleTable(const PlanPart& part, const Coordinates& at,
              const FlatLayout& parameters);

  int32_t module(int32_t tensor) const {
    return of_tensor[static_cast<size_t>(tensor)];
  }
  bool is_large(int32_t module) const {
    return large[static_cast<size_t>(module)] != 0;
  }

  std::vector<int32_t> of_tensor;             // module; -1: not on this rank
  std::vector<int64_t> offset;                // in a slot, by tensor
  std::vector<std::vector<int32_t>> tensors;  // by module, without frozen ones
  std::vector<std::vector<int32_t>> buckets;  // of the rank, by module
  std::vector<uint8_t> large;                 // by module: needs a large slot
};

struct Message {
  std::vector<ExtentCopy> copies;  // from the message to a slot
  int64_t num_elements = 0;
  int64_t own_first = 0;  // first element of this rank's piece
  bool direct = false;    // has the layout of the slot, from in_slot() on

  int64_t in_slot() const { return copies.empty() ? 0 : copies[0].to; }
};
// Returns the messages over the ranks that keep the slices at rest
// (GroupKind::kParameters or kGradients), by bucket of the rank.
std::vector<Message> messages_of(const PlanPart& part, int32_t rank,
                                 const ModuleTable& table, Resting what);

// If tensors lie whole although several ranks share their slices, messages are
// assembled in a staging area: all pieces of a bucket, or those that this rank
// keeps. Empty if the layout is not staged.
struct Staging {
  std::vector<ExtentCopy> all, own;  // from the tensors' places
};
Staging staging_of(const PlanPart& part, const FlatLayout& layout,
                   const RankBucket& bucket);

// The memory for modules on a rank of a stage (zero.h): slots for modules in
// use or in transit, and staging for messages.
//
//   PoolSizes pools = pool_sizes(part, stage);

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
  // Returns the pools with so many more modules gathered ahead.
  PoolSizes ahead(int32_t prefetch) const;
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

}  // namespace canzona::plan

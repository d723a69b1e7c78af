// Whole items dealt to ranks: the state of the joint search.
//
// Items of one class are alike in every respect that matters (load, elements,
// bytes), so a rank's bundle is a short list of (class, count), and 36,000
// matrices on 1,024 ranks are a few thousand numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/makespan/bound.h"

namespace canzona {

struct ClassCount {
  int32_t item_class = 0;
  int32_t count = 0;
  friend bool operator==(const ClassCount&, const ClassCount&) = default;
};

// The bundles of all ranks. `zones[r]` is the zone of rank r, and an item's
// zone is one of these. With `sets`, which may overlap, an item's zone is
// instead the number of its set of owners, and ranks that are in the same sets
// have the same zone. Classes and sets must outlive the bundles.
class Bundles {
 public:
  Bundles(const std::vector<ItemClass>& classes, std::vector<int64_t> steps,
          std::vector<int32_t> zones);
  Bundles(const std::vector<ItemClass>& classes, std::vector<int64_t> steps,
          size_t num_ranks, const OwnerSets& sets);

  size_t num_ranks() const { return bundles_.size(); }
  size_t dims() const { return steps_.size(); }
  int32_t zone(size_t rank) const { return zones_[rank]; }
  const std::vector<ItemClass>& classes() const { return *classes_; }
  const std::vector<ClassCount>& bundle(size_t rank) const {
    return bundles_[rank];
  }
  std::span<const int64_t> load(size_t rank) const {
    return std::span(loads_).subspan(rank * dims(), dims());
  }
  std::span<const int64_t> steps() const { return steps_; }

  void add(size_t rank, int32_t item_class, int32_t count);
  bool may_own(size_t rank, int32_t item_class) const {
    const int32_t zone = (*classes_)[static_cast<size_t>(item_class)].zone;
    if (sets_ != nullptr) return is_in_set(rank, zone);
    return zone == kAnyZone || zone == zones_[rank];
  }
  // Returns the ranks that may own items of a zone, ascending.
  std::vector<size_t> owners(int32_t zone) const;

  // Return the load of a rank over a whole period, and the objective.
  int64_t period_load(size_t rank) const;
  int64_t objective() const;

 private:
  bool is_in_set(size_t rank, int32_t set) const;

  const std::vector<ItemClass>* classes_;
  const OwnerSets* sets_ = nullptr;
  std::vector<int64_t> steps_;
  std::vector<int32_t> zones_;
  std::vector<std::vector<ClassCount>> bundles_;
  std::vector<int64_t> loads_;
};

// Deals by longest processing time: the largest class first, each item to the
// least loaded rank of its zone; ties go to the lowest rank.
void deal_longest_first(Bundles& bundles);
// The same, but starts with the classes that the fewest ranks may own.
void deal_narrowest_first(Bundles& bundles);

// Local search: the critical rank gives up to two items and takes up to two
// from another rank while the objective falls, or stays and fewer ranks are
// critical. Deterministic; `budget` limits the number of exchanges tried.
void exchange_items(Bundles& bundles, int64_t budget);

}  // namespace canzona

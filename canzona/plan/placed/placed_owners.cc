#include "canzona/plan/placed/placed_owners.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "canzona/base/index.h"
#include "canzona/plan/predict/state_bytes.h"
#include "canzona/plan/search/joint.h"
#include "canzona/plan/search/owners.h"

namespace canzona {
namespace {

// Indices of `sizes`, the largest first.
std::vector<size_t> largest_first(const std::vector<int64_t>& sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

// Matrices as items to be dealt to the ranks that store pieces of them.
class OwnerSearch {
 public:
  OwnerSearch(const PlacedBasis& basis, const PlacedPlan& plan)
      : basis_(basis), plan_(plan), sets_(owner_sets()), alike_(kinds()) {
    find_blocks();
  }

  std::vector<int32_t> run() const {
    const auto& steps = basis_.kinds().steps();
    if (plan_.matrices.empty()) return {};
    if (blocks_.empty())
      return alike_.ranks(
          search_bundles(alike_.classes(), steps, index(plan_.world), sets_));
    const std::vector<ItemClass> classes = classes_in_blocks();
    return alike_.ranks(search_bundles(classes, steps, blocks_, 1, {}));
  }

  int64_t bound(int64_t upper) const {
    const auto& steps = basis_.kinds().steps();
    if (plan_.matrices.empty()) return 0;
    if (blocks_.empty())
      return objective_bound(alike_.classes(), steps, index(plan_.world), sets_,
                             upper);
    return objective_bound(classes_in_blocks(), steps, blocks_, upper);
  }

 private:
  // The sets of ranks that store pieces of a matrix, each once.
  OwnerSets owner_sets() {
    std::map<std::vector<int32_t>, int32_t> numbers;
    OwnerSets sets;
    for (size_t m = 0; m < plan_.matrices.size(); ++m) {
      std::vector<int32_t> ranks;
      for (const Holder& holder : basis_.holders()[m])
        ranks.push_back(holder.rank);
      const auto [it, fresh] =
          numbers.emplace(ranks, static_cast<int32_t>(sets.size()));
      if (fresh) sets.push_back(std::move(ranks));
      set_of_.push_back(it->second);
    }
    return sets;
  }

  std::vector<ItemClass> kinds() const {
    const auto facts = group_facts(plan_.groups);
    std::vector<StateBytesTable> states;
    for (const auto& rule : facts) states.emplace_back(*rule);
    std::vector<ItemClass> out;
    for (size_t i = 0; i < plan_.matrices.size(); ++i) {
      const PlacedMatrix& m = plan_.matrices[i];
      const int32_t group = plan_.tensors[index(m.tensor)].group;
      ItemClass& kind = out.emplace_back();
      kind.load = basis_.kinds().load(m.cost, group, m.phase);
      kind.owner_bytes = states[index(group)].of({m.rows, m.cols}).with_owner;
      kind.block = set_of_[i];
    }
    return out;
  }

  // If no two sets overlap, except with that of all ranks, they are blocks of
  // ranks. A rank that stores no matrix is in a block without items.
  void find_blocks() {
    const auto none = static_cast<int32_t>(sets_.size());
    std::vector<int32_t> blocks(index(plan_.world), none);
    for (size_t s = 0; s < sets_.size(); ++s) {
      if (is_any(s)) continue;
      for (const int32_t rank : sets_[s]) {
        if (blocks[index(rank)] != none) return;
        blocks[index(rank)] = static_cast<int32_t>(s);
      }
    }
    blocks_ = std::move(blocks);
  }

  bool is_any(size_t set) const {
    return std::ssize(sets_[set]) == plan_.world;
  }

  std::vector<ItemClass> classes_in_blocks() const {
    std::vector<ItemClass> classes = alike_.classes();
    for (ItemClass& c : classes)
      if (is_any(index(c.block))) c.block = kAnyBlock;
    return classes;
  }

  const PlacedBasis& basis_;
  const PlacedPlan& plan_;
  std::vector<int32_t> set_of_;  // by matrix
  OwnerSets sets_;
  AlikeItems alike_;
  std::vector<int32_t> blocks_;  // by rank; empty: sets overlap
};

// Owners that store more of their matrices, so that less moves, and then loads
// that are more level. No pair of ranks gets a larger load in any step than one
// of them had.
class NearerOwners {
 public:
  NearerOwners(const PlacedBasis& basis, PlacedPlan& plan)
      : basis_(basis), plan_(plan), loads_(placed_loads(plan, basis.kinds())) {}

  void run() {
    constexpr int kPasses = 4;
    bool changed = true;
    for (int pass = 0; pass < kPasses && changed; ++pass) {
      changed = false;
      for (size_t m = 0; m < plan_.matrices.size(); ++m)
        changed = improve(m) || changed;
    }
  }

 private:
  int64_t stored(size_t matrix, int32_t rank) const {
    const auto holders = basis_.holders()[matrix];
    const auto at =
        std::lower_bound(holders.begin(), holders.end(), rank,
                         [](const Holder& h, int32_t r) { return h.rank < r; });
    return at != holders.end() && at->rank == rank ? at->elements : 0;
  }

  // Moves a matrix to the rank that stores most of it, and of those to the one
  // that is loaded least.
  bool improve(size_t matrix) {
    PlacedMatrix& m = plan_.matrices[matrix];
    const auto load = basis_.kinds().load(
        m.cost, plan_.tensors[index(m.tensor)].group, m.phase);
    const int64_t added = basis_.work_of(matrix);
    auto best = std::pair(-stored(matrix, m.owner), load_of(m.owner));
    int32_t to = m.owner;
    for (const Holder& holder : basis_.holders()[matrix]) {
      if (holder.rank == m.owner || !fits(load, m.owner, holder.rank)) continue;
      const std::pair key(-holder.elements, load_of(holder.rank) + added);
      if (key >= best) continue;
      best = key;
      to = holder.rank;
    }
    if (to == m.owner) return false;
    for (size_t k = 0; k < load.size(); ++k) {
      loads_[index(m.owner)][k] -= load[k];
      loads_[index(to)][k] += load[k];
    }
    m.owner = to;
    return true;
  }

  // Over a period.
  int64_t load_of(int32_t rank) const {
    const auto& steps = basis_.kinds().steps();
    return std::inner_product(steps.begin(), steps.end(),
                              loads_[index(rank)].begin(), int64_t{0});
  }

  bool fits(const std::vector<int64_t>& load, int32_t from, int32_t to) const {
    for (size_t k = 0; k < load.size(); ++k)
      if (loads_[index(to)][k] + load[k] > loads_[index(from)][k]) return false;
    return true;
  }

  const PlacedBasis& basis_;
  PlacedPlan& plan_;
  std::vector<std::vector<int64_t>> loads_;  // by rank and kind of step
};

void deal_elements(PlacedPlan& plan) {
  std::vector<std::vector<int64_t>> kept;  // by class and line
  for (const PlacedClass& c : plan.classes)
    kept.emplace_back(c.lines.size(), 0);
  std::vector<int64_t> sizes;
  for (const PlacedElements& e : plan.elements)
    sizes.push_back(whole_elements(plan.tensors[index(e.tensor)]));
  for (const size_t i : largest_first(sizes)) {
    PlacedElements& e = plan.elements[i];
    auto& lines = kept[index(plan.class_of[index(e.tensor)])];
    const auto least = std::min_element(lines.begin(), lines.end());
    e.line = static_cast<int32_t>(least - lines.begin());
    *least += sizes[i];
  }
}

}  // namespace

void decide_owners(const PlacedBasis& basis, PlacedPlan& plan) {
  const std::vector<int32_t> owners = OwnerSearch(basis, plan).run();
  for (size_t m = 0; m < owners.size(); ++m) plan.matrices[m].owner = owners[m];
  NearerOwners(basis, plan).run();
  deal_elements(plan);
}

Ticks placed_bound(const PlacedBasis& basis, const PlacedPlan& plan,
                   Ticks upper) {
  return Ticks(OwnerSearch(basis, plan).bound(upper.value()));
}

}  // namespace canzona

#include "canzona/plan/search/joint.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace canzona::plan {
namespace {

constexpr int64_t kInnerBudget = 20'000;

using Bundle = std::vector<ClassCount>;

class SplitSearch {
 public:
  SplitSearch(Bundles& homes, const MatrixLoads& loads, int32_t tp,
              int64_t budget)
      : homes_(homes),
        loads_(loads),
        ranks_(static_cast<size_t>(tp), 0),
        budget_(budget) {}

  int64_t run() {
    for (size_t h = 0; h < homes_.num_ranks(); ++h) {
      makespans_.push_back(makespan(homes_.bundle(h)));
    }
    while (budget_ > 0 && improve_once()) {
    }
    return *std::max_element(makespans_.begin(), makespans_.end());
  }

 private:
  // Returns the makespan of one home's tensors on its tp ranks; equal homes are
  // dealt once.
  int64_t makespan(const Bundle& bundle) {
    std::vector<std::pair<int32_t, int32_t>> key;
    for (const ClassCount& c : bundle) key.emplace_back(c.item_class, c.count);
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    --budget_;
    return known_[key] = deal(bundle);
  }

  int64_t deal(const Bundle& bundle) const {
    std::map<std::vector<int64_t>, int64_t> alike;
    for (const ClassCount& c : bundle) {
      for (const auto& load : loads_[static_cast<size_t>(c.item_class)]) {
        alike[load] += c.count;
      }
    }
    std::vector<ItemClass> classes;
    for (const auto& [load, count] : alike) {
      ItemClass item;
      item.load = load;
      item.count = count;
      classes.push_back(std::move(item));
    }
    Bundles inner(classes, {homes_.steps().begin(), homes_.steps().end()},
                  ranks_);
    deal_longest_first(inner);
    exchange_items(inner, kInnerBudget);
    return inner.objective();
  }

  static Bundle changed(const Bundle& bundle, int32_t out, int32_t in) {
    Bundle next;
    bool added = in < 0;
    for (ClassCount c : bundle) {
      if (!added && c.item_class > in) {
        next.push_back({in, 1});
        added = true;
      }
      if (c.item_class == out) --c.count;
      if (c.item_class == in) {
        ++c.count;
        added = true;
      }
      if (c.count > 0) next.push_back(c);
    }
    if (!added) next.push_back({in, 1});
    return next;
  }

  bool improve_once() {
    const auto from = static_cast<size_t>(
        std::max_element(makespans_.begin(), makespans_.end()) -
        makespans_.begin());
    std::vector<size_t> order(makespans_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return makespans_[a] < makespans_[b];
    });
    for (size_t to : order) {
      if (to != from && improve_pair(from, to)) return true;
    }
    return false;
  }

  bool improve_pair(size_t from, size_t to) {
    const Bundle given = homes_.bundle(from), other = homes_.bundle(to);
    for (const ClassCount& out : given) {
      if (!homes_.may_own(to, out.item_class)) continue;
      if (try_exchange(from, to, out.item_class, -1)) return true;
      for (const ClassCount& in : other) {
        if (in.item_class == out.item_class ||
            !homes_.may_own(from, in.item_class)) {
          continue;
        }
        if (budget_ <= 0) return false;
        if (try_exchange(from, to, out.item_class, in.item_class)) return true;
      }
    }
    return false;
  }

  bool try_exchange(size_t from, size_t to, int32_t out, int32_t in) {
    const int64_t limit = makespans_[from];
    const int64_t a = makespan(changed(homes_.bundle(from), out, in));
    if (a >= limit) return false;
    const int64_t b = makespan(changed(homes_.bundle(to), in, out));
    if (b >= limit) return false;
    transfer(from, to, out);
    transfer(to, from, in);
    makespans_[from] = a;
    makespans_[to] = b;
    return true;
  }

  void transfer(size_t from, size_t to, int32_t c) {
    if (c < 0) return;
    homes_.add(from, c, -1);
    homes_.add(to, c, 1);
  }

  Bundles& homes_;
  const MatrixLoads& loads_;
  std::vector<int32_t> ranks_;  // zones of the tp ranks: one
  int64_t budget_;
  std::vector<int64_t> makespans_;
  std::map<std::vector<std::pair<int32_t, int32_t>>, int64_t> known_;
};

// One matrix of one tensor; tensors are numbered class by class.
struct SplitItem {
  int64_t load;
  size_t tensor;
  int32_t item_class;
};

std::vector<SplitItem> items_longest_first(const Bundles& homes,
                                           const MatrixLoads& loads) {
  std::vector<SplitItem> items;
  size_t tensor = 0;
  for (size_t c = 0; c < loads.size(); ++c) {
    for (int64_t i = 0; i < homes.classes()[c].count; ++i, ++tensor) {
      for (const auto& load : loads[c]) {
        int64_t period = 0;
        for (size_t p = 0; p < load.size(); ++p) {
          period += homes.steps()[p] * load[p];
        }
        items.push_back({period, tensor, static_cast<int32_t>(c)});
      }
    }
  }
  std::stable_sort(
      items.begin(), items.end(),
      [](const SplitItem& a, const SplitItem& b) { return a.load > b.load; });
  return items;
}

}  // namespace

int64_t improve_split_homes(Bundles& homes, const MatrixLoads& loads,
                            int32_t tp, int64_t budget) {
  return SplitSearch(homes, loads, tp, budget).run();
}

void deal_split_longest_first(Bundles& homes, const MatrixLoads& loads,
                              int32_t tp) {
  const auto width = static_cast<size_t>(tp);
  std::vector<int64_t> ranks(homes.num_ranks() * width, 0);
  std::map<size_t, size_t> home_of;  // per tensor
  for (const SplitItem& item : items_longest_first(homes, loads)) {
    const auto fixed = home_of.find(item.tensor);
    size_t best = ranks.size();
    for (size_t r = 0; r < ranks.size(); ++r) {
      const size_t h = r / width;
      if (fixed != home_of.end() ? h != fixed->second
                                 : !homes.may_own(h, item.item_class)) {
        continue;
      }
      if (best == ranks.size() || ranks[r] < ranks[best]) best = r;
    }
    ranks[best] += item.load;
    if (fixed == home_of.end()) {
      home_of[item.tensor] = best / width;
      homes.add(best / width, item.item_class, 1);
    }
  }
}

}  // namespace canzona::plan

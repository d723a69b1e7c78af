#include "canzona/plan/search/bundles.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

namespace canzona {

Bundles::Bundles(const std::vector<ItemClass>& classes,
                 std::vector<int64_t> steps, std::vector<int32_t> blocks)
    : classes_(&classes),
      steps_(std::move(steps)),
      blocks_(std::move(blocks)),
      bundles_(blocks_.size()),
      loads_(blocks_.size() * steps_.size(), 0) {}

namespace {

// Ranks that are in the same sets have the same number.
std::vector<int32_t> blocks_by_sets(size_t num_ranks, const OwnerSets& sets) {
  std::vector<int32_t> block(num_ranks, 0);
  int32_t num_blocks = 1;
  for (const auto& set : sets) {
    std::map<int32_t, int32_t> renamed;
    for (const int32_t rank : set) {
      int32_t& own = block[static_cast<size_t>(rank)];
      const auto [it, fresh] = renamed.emplace(own, num_blocks);
      if (fresh) ++num_blocks;
      own = it->second;
    }
  }
  return block;
}

}  // namespace

Bundles::Bundles(const std::vector<ItemClass>& classes,
                 std::vector<int64_t> steps, size_t num_ranks,
                 const OwnerSets& sets)
    : Bundles(classes, std::move(steps), blocks_by_sets(num_ranks, sets)) {
  sets_ = &sets;
}

bool Bundles::is_in_set(size_t rank, int32_t set) const {
  const auto& ranks = (*sets_)[static_cast<size_t>(set)];
  return std::binary_search(ranks.begin(), ranks.end(),
                            static_cast<int32_t>(rank));
}

std::vector<size_t> Bundles::owners(int32_t block) const {
  std::vector<size_t> out;
  if (sets_ != nullptr) {
    const auto& ranks = (*sets_)[static_cast<size_t>(block)];
    out.assign(ranks.begin(), ranks.end());
    return out;
  }
  for (size_t r = 0; r < num_ranks(); ++r)
    if (block == kAnyBlock || block == blocks_[r]) out.push_back(r);
  return out;
}

void Bundles::add(size_t rank, int32_t item_class, int32_t count) {
  auto& items = bundles_[rank];
  auto it = std::find_if(items.begin(), items.end(), [&](const ClassCount& c) {
    return c.item_class >= item_class;
  });
  if (it != items.end() && it->item_class == item_class) {
    it->count += count;
    if (it->count == 0) items.erase(it);
  } else if (count != 0) {
    items.insert(it, {item_class, count});
  }
  const auto& load = (*classes_)[static_cast<size_t>(item_class)].load;
  for (size_t p = 0; p < dims(); ++p) {
    loads_[rank * dims() + p] += load[p] * count;
  }
}

int64_t Bundles::period_load(size_t rank) const {
  int64_t sum = 0;
  for (size_t p = 0; p < dims(); ++p) sum += steps_[p] * load(rank)[p];
  return sum;
}

int64_t Bundles::objective() const {
  int64_t sum = 0;
  for (size_t p = 0; p < dims(); ++p) {
    int64_t most = 0;
    for (size_t r = 0; r < num_ranks(); ++r) most = std::max(most, load(r)[p]);
    sum += steps_[p] * most;
  }
  return sum;
}

namespace {

int64_t period_load_of(const Bundles& bundles, const ItemClass& c) {
  int64_t sum = 0;
  for (size_t p = 0; p < bundles.dims(); ++p) {
    sum += bundles.steps()[p] * c.load[p];
  }
  return sum;
}

std::vector<int32_t> classes_longest_first(const Bundles& bundles) {
  const auto& classes = bundles.classes();
  std::vector<int32_t> order(classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return period_load_of(bundles, classes[static_cast<size_t>(a)]) >
           period_load_of(bundles, classes[static_cast<size_t>(b)]);
  });
  return order;
}

// Ranks of one block (or of all), the least loaded on top. Entries go stale
// when another heap's item lands on their rank and are then pushed again.
class LeastLoaded {
 public:
  LeastLoaded(const Bundles& bundles, int32_t block) : bundles_(bundles) {
    for (const size_t rank : bundles.owners(block)) push(rank);
  }
  size_t take() {
    while (true) {
      auto [load, rank] = heap_.top();
      heap_.pop();
      if (bundles_.period_load(rank) == load) return rank;
      push(rank);
    }
  }
  void push(size_t rank) { heap_.push({bundles_.period_load(rank), rank}); }

 private:
  using Entry = std::pair<int64_t, size_t>;
  const Bundles& bundles_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
};

void deal_in_order(Bundles& bundles, const std::vector<int32_t>& order) {
  std::map<int32_t, LeastLoaded> heaps;  // by block
  for (const int32_t c : order) {
    const ItemClass& item = bundles.classes()[static_cast<size_t>(c)];
    LeastLoaded& heap =
        heaps.try_emplace(item.block, bundles, item.block).first->second;
    for (int64_t i = 0; i < item.count; ++i) {
      const size_t rank = heap.take();
      bundles.add(rank, c, 1);
      heap.push(rank);
    }
  }
}

}  // namespace

void deal_longest_first(Bundles& bundles) {
  deal_in_order(bundles, classes_longest_first(bundles));
}

void deal_narrowest_first(Bundles& bundles) {
  std::map<int32_t, size_t> num_owners;  // by block
  for (const ItemClass& c : bundles.classes())
    if (!num_owners.contains(c.block))
      num_owners[c.block] = bundles.owners(c.block).size();
  std::vector<int32_t> order = classes_longest_first(bundles);
  const auto owners = [&](int32_t c) {
    return num_owners[bundles.classes()[static_cast<size_t>(c)].block];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return owners(a) < owners(b); });
  deal_in_order(bundles, order);
}

}  // namespace canzona

#include "canzona/plan/search/homes.h"

#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace canzona {

HomeWeight weigh_item(const Bundles& bundles, int32_t item_class) {
  const ItemClass& c = bundles.classes()[static_cast<size_t>(item_class)];
  HomeWeight w{0, c.home_bytes + c.owner_bytes, c.elements};
  for (size_t p = 0; p < bundles.dims(); ++p) {
    w.cost += bundles.steps()[p] * c.load[p];
  }
  return w;
}

HomeWeight weigh_bundle(const Bundles& bundles, size_t rank) {
  HomeWeight sum;
  for (const ClassCount& c : bundles.bundle(rank)) {
    sum.add(weigh_item(bundles, c.item_class), c.count);
  }
  return sum;
}

size_t largest_home(const std::vector<HomeWeight>& homes,
                    int64_t HomeWeight::*key) {
  size_t best = 0;
  for (size_t h = 1; h < homes.size(); ++h) {
    if (homes[h].*key > homes[best].*key) best = h;
  }
  return best;
}

int64_t largest(const std::vector<HomeWeight>& homes,
                int64_t HomeWeight::*key) {
  return homes[largest_home(homes, key)].*key;
}

HomeLimits limits_for_memory(const std::vector<HomeWeight>& homes,
                             HomeLimits limits) {
  double sum = 0;
  for (const HomeWeight& home : homes) sum += static_cast<double>(home.cost);
  const double mean = sum / static_cast<double>(homes.size());
  limits.cost = std::max(largest(homes, &HomeWeight::cost),
                         static_cast<int64_t>(mean * kLevelCost));
  return limits;
}

namespace {

// Bounds the time where homes are hundreds of thousands. A stage of up to 65,536
// ranks has all its rounds, 12 for each home; real models take a few hundred.
constexpr int64_t kMostSwapsLookedAt = int64_t{1} << 36;

class Grouping {
 public:
  using Key = int64_t HomeWeight::*;

  Grouping(const Bundles& bundles, int32_t tp)
      : bundles_(bundles),
        tp_(static_cast<size_t>(tp)),
        homes_(bundles.num_ranks() / tp_),
        slots_(homes_.size()) {
    for (size_t r = 0; r < bundles.num_ranks(); ++r) {
      weights_.push_back(weigh_bundle(bundles, r));
    }
  }

  std::vector<size_t> run(const HomeLimits& budgets) {
    deal();
    // Each round looks at all swaps of one home.
    const auto looks = static_cast<int64_t>(homes_.size() * tp_ * tp_);
    auto rounds = std::min(static_cast<int64_t>(12 * homes_.size()),
                           kMostSwapsLookedAt / looks);
    level(homes_, budgets, [&](Key key, const HomeLimits& limits) {
      return rounds-- > 0 && relieve(key, limits);
    });
    std::vector<size_t> bundle_at;
    for (const auto& slot : slots_) {
      bundle_at.insert(bundle_at.end(), slot.begin(), slot.end());
    }
    return bundle_at;
  }

 private:
  struct Swap {
    size_t to = 0, i = 0, j = 0;
    int64_t key = 0;
  };

  int32_t block(size_t home) const { return bundles_.block(home * tp_); }

  // Dearest bundle first to the cheapest home of its block with a free slot.
  void deal() {
    std::vector<size_t> order(weights_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(weights_[a].cost, weights_[a].memory) >
             std::pair(weights_[b].cost, weights_[b].memory);
    });
    // Homes with a free slot by cost, memory and number, for each block.
    using OpenHome = std::tuple<int64_t, int64_t, size_t>;
    std::map<int32_t, std::set<OpenHome>> open;
    for (size_t h = 0; h < homes_.size(); ++h) open[block(h)].insert({0, 0, h});
    for (size_t bundle : order) {
      std::set<OpenHome>& of_block = open[bundles_.block(bundle)];
      const size_t home = std::get<size_t>(*of_block.begin());
      of_block.erase(of_block.begin());
      slots_[home].push_back(bundle);
      homes_[home] += weights_[bundle];
      if (slots_[home].size() < tp_)
        of_block.insert({homes_[home].cost, homes_[home].memory, home});
    }
  }

  // The swap that lowers the largest `key` most, within the limits.
  bool relieve(Key key, const HomeLimits& limits) {
    const size_t from = largest_home(homes_, key);
    Swap best{0, 0, 0, homes_[from].*key};
    for (size_t to = 0; to < homes_.size(); ++to) {
      if (to == from || block(to) != block(from)) continue;
      for (size_t i = 0; i < tp_; ++i) {
        for (size_t j = 0; j < tp_; ++j) {
          consider(from, {to, i, j, 0}, key, limits, best);
        }
      }
    }
    if (best.key == homes_[from].*key) return false;
    apply(from, best);
    return true;
  }

  HomeWeight moved(size_t from, const Swap& s) const {
    HomeWeight w = weights_[slots_[from][s.i]];
    return w -= weights_[slots_[s.to][s.j]];
  }

  void consider(size_t from, Swap s, Key key, const HomeLimits& limits,
                Swap& best) const {
    const HomeWeight w = moved(from, s);
    if (w.*key <= 0) return;
    HomeWeight a = homes_[from], b = homes_[s.to];
    a -= w;
    b += w;
    s.key = std::max(a.*key, b.*key);
    if (s.key < best.key && limits.allow(a) && limits.allow(b)) best = s;
  }

  void apply(size_t from, const Swap& s) {
    const HomeWeight w = moved(from, s);
    homes_[from] -= w;
    homes_[s.to] += w;
    std::swap(slots_[from][s.i], slots_[s.to][s.j]);
  }

  const Bundles& bundles_;
  size_t tp_;
  std::vector<HomeWeight> weights_;  // per bundle
  std::vector<HomeWeight> homes_;
  std::vector<std::vector<size_t>> slots_;
};

}  // namespace

std::vector<size_t> group_into_homes(const Bundles& bundles, int32_t tp,
                                     const HomeLimits& budgets) {
  return Grouping(bundles, tp).run(budgets);
}

Bundles permuted(const Bundles& bundles, const std::vector<size_t>& bundle_at) {
  std::vector<int32_t> blocks;
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    blocks.push_back(bundles.block(r));
  }
  Bundles out(bundles.classes(),
              {bundles.steps().begin(), bundles.steps().end()}, blocks);
  for (size_t r = 0; r < bundle_at.size(); ++r) {
    for (const ClassCount& c : bundles.bundle(bundle_at[r])) {
      out.add(r, c.item_class, c.count);
    }
  }
  return out;
}

}  // namespace canzona

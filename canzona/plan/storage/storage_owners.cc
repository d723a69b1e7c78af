#include "canzona/plan/storage/storage_owners.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/search/joint.h"
#include "canzona/plan/search/owners.h"
#include "canzona/plan/search/teams.h"

namespace canzona::plan {
namespace {

// Returns the indices of `sizes`, largest first.
std::vector<size_t> largest_first(const std::vector<int64_t>& sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

// Deals matrices as items to the ranks that store pieces of them.
class OwnerSearch {
 public:
  OwnerSearch(const StorageBasis& basis, const StoragePlan& plan)
      : basis_(basis), plan_(plan), sets_(owner_sets()), alike_(kinds()) {
    find_zones();
  }

  std::vector<int32_t> run() const {
    const auto& steps = basis_.kinds().steps();
    if (plan_.matrices.empty()) return {};
    if (zones_.empty())
      return alike_.ranks(
          search_bundles(alike_.classes(), steps, index(plan_.world), sets_));
    const std::vector<ItemClass> classes = classes_in_zones();
    return alike_.ranks(search_bundles(classes, steps, zones_, 1, {}));
  }

  int64_t bound(int64_t upper) const {
    const auto& steps = basis_.kinds().steps();
    if (plan_.matrices.empty()) return 0;
    if (zones_.empty())
      return objective_bound(alike_.classes(), steps, index(plan_.world), sets_,
                             upper);
    return objective_bound(classes_in_zones(), steps, zones_, upper);
  }

 private:
  // Returns the distinct sets of ranks that store pieces of a matrix.
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
      const OwnedMatrix& m = plan_.matrices[i];
      const int32_t group = plan_.tensors[index(m.tensor)].group;
      ItemClass& kind = out.emplace_back();
      kind.load = basis_.kinds().load(m.cost, group, m.phase);
      kind.owner_bytes = states[index(group)].of({m.rows, m.cols}).with_owner;
      kind.zone = set_of_[i];
    }
    return out;
  }

  // If no two sets overlap, apart from the set of all ranks, they are zones of
  // ranks. A rank that stores no matrix is in a zone without items.
  void find_zones() {
    const auto none = static_cast<int32_t>(sets_.size());
    std::vector<int32_t> zones(index(plan_.world), none);
    for (size_t s = 0; s < sets_.size(); ++s) {
      if (is_any(s)) continue;
      for (const int32_t rank : sets_[s]) {
        if (zones[index(rank)] != none) return;
        zones[index(rank)] = static_cast<int32_t>(s);
      }
    }
    zones_ = std::move(zones);
  }

  bool is_any(size_t set) const {
    return std::ssize(sets_[set]) == plan_.world;
  }

  std::vector<ItemClass> classes_in_zones() const {
    std::vector<ItemClass> classes = alike_.classes();
    for (ItemClass& c : classes)
      if (is_any(index(c.zone))) c.zone = kAnyZone;
    return classes;
  }

  const StorageBasis& basis_;
  const StoragePlan& plan_;
  std::vector<int32_t> set_of_;  // by matrix
  OwnerSets sets_;
  AlikeItems alike_;
  std::vector<int32_t> zones_;  // by rank; empty: sets overlap
};

// Moves matrices to owners that store more of them, so that less data moves,
// and then levels loads. In no step does the larger load of two ranks grow.
class NearerOwners {
 public:
  NearerOwners(const StorageBasis& basis, StoragePlan& plan)
      : basis_(basis),
        plan_(plan),
        loads_(storage_loads(plan, basis.kinds())) {}

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

  // Moves a matrix to the rank that stores most of it; ties go to the least
  // loaded.
  bool improve(size_t matrix) {
    OwnedMatrix& m = plan_.matrices[matrix];
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

  // Returns a rank's load over a period.
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

  const StorageBasis& basis_;
  StoragePlan& plan_;
  std::vector<std::vector<int64_t>> loads_;  // by rank and kind of step
};

void deal_elements(StoragePlan& plan) {
  std::vector<std::vector<int64_t>> kept;  // by class and line
  for (const ReplicaClass& c : plan.classes)
    kept.emplace_back(c.lines.size(), 0);
  std::vector<int64_t> sizes;
  for (const SharedElements& e : plan.elements)
    sizes.push_back(whole_elements(plan.tensors[index(e.tensor)]));
  for (const size_t i : largest_first(sizes)) {
    SharedElements& e = plan.elements[i];
    auto& lines = kept[index(plan.class_of[index(e.tensor)])];
    const auto least = std::min_element(lines.begin(), lines.end());
    e.line = static_cast<int32_t>(least - lines.begin());
    *least += sizes[i];
  }
}

}  // namespace

void decide_owners(const StorageBasis& basis, StoragePlan& plan) {
  const std::vector<int32_t> owners = OwnerSearch(basis, plan).run();
  for (size_t m = 0; m < owners.size(); ++m) plan.matrices[m].owner = owners[m];
  NearerOwners(basis, plan).run();
  deal_elements(plan);
}

Ticks storage_bound(const StorageBasis& basis, const StoragePlan& plan,
                    Ticks upper) {
  return Ticks(OwnerSearch(basis, plan).bound(upper.value()));
}

namespace {

// Bounds rounds × ranks, and rounds × matrices.
constexpr int64_t kMostRoundCounts = int64_t{1} << 28;

bool keeps(const RoundBytes& bytes, int64_t capacity) {
  return *std::max_element(bytes.begin(), bytes.end()) <= capacity;
}

void add_round_bytes(RoundBytes& sum, const RoundBytes& more) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

// A matrix or shared elements without a round yet.
struct RoundItem {
  size_t item = 0;
  std::vector<int32_t> owners;  // the first one has the most work
  int32_t line = 0;
  int64_t work = 0;  // of the first owner

  int32_t owner() const { return owners.front(); }
};

// The rounds of one class, filled item by item.
class OpenRounds {
 public:
  OpenRounds(size_t rounds, const StoragePlan& plan)
      : capacity_(plan.options.capacity_bytes),
        strict_(plan.options.strict_capacity),
        world_(index(plan.world)),
        rounds_(rounds) {}

  // Adds the item to the round with room that it fills least; false if none has
  // room.
  bool add(const RoundItem& item, const std::vector<RankRoundBytes>& bytes,
           size_t& round) {
    const size_t n = rounds_.size();
    auto& work = work_[item.owner()];
    work.resize(n, 0);
    // Owners fill rounds in the same order, so that they work in parallel;
    // items without work go to the round with the fewest bytes.
    const auto key = [&](size_t r) {
      return std::pair(round_fullness(r, n, work[r], item.work),
                       item.work > 0 ? 0 : rounds_[r].pieces);
    };
    size_t best = n;
    for (size_t r = 0; r < n; ++r)
      if ((best == n || key(r) < key(best)) &&
          has_room(rounds_[r], item, bytes))
        best = r;
    if (best == n) return false;
    put(rounds_[best], item, bytes);
    work[best] += item.work;
    round = best;
    return true;
  }

 private:
  struct Round {
    std::vector<RoundBytes> used;  // by rank, once the round is used
    std::set<int32_t> owners;
    bool has_several = false;  // items of one owner
    int32_t line = -1;         // of all items; -1: none yet, -2: several
    int64_t pieces = 0;        // bytes on all ranks
    bool full = false;         // above the capacity on some rank
  };

  // True if the round stays within the capacity on every rank, or has one item
  // per owner.
  bool has_room(const Round& round, const RoundItem& item,
                const std::vector<RankRoundBytes>& bytes) const {
    const bool in_line = round.line == -1 || round.line == item.line;
    if (!round.has_several && !has_any(round, item) && (in_line || !strict_))
      return true;
    if (round.full) return false;
    return std::all_of(bytes.begin(), bytes.end(), [&](auto& b) {
      RoundBytes sum = round.used[index(b.rank)];
      add_round_bytes(sum, b.bytes);
      return keeps(sum, capacity_);
    });
  }

  static bool has_any(const Round& round, const RoundItem& item) {
    return std::ranges::any_of(
        item.owners, [&](int32_t rank) { return round.owners.contains(rank); });
  }

  void put(Round& round, const RoundItem& item,
           const std::vector<RankRoundBytes>& bytes) const {
    if (round.used.empty()) round.used.resize(world_);
    for (const RankRoundBytes& b : bytes) {
      RoundBytes& sum = round.used[index(b.rank)];
      add_round_bytes(sum, b.bytes);
      round.full = round.full || !keeps(sum, capacity_);
      round.pieces += b.bytes[0] + b.bytes[3];
    }
    round.has_several = round.has_several || has_any(round, item);
    if (round.owners.empty())
      round.line = item.line;
    else if (round.line != item.line)
      round.line = -2;
    round.owners.insert(item.owners.begin(), item.owners.end());
  }

  int64_t capacity_;
  bool strict_;
  size_t world_;
  std::vector<Round> rounds_;
  std::map<int32_t, std::vector<int64_t>> work_;  // by owner and round
};

// Returns the rounds wanted for overlap, or the minimum that the bytes require.
int64_t fewest_storage_rounds(const std::vector<RoundItem>& items,
                              RoundCounter& counter, int32_t world,
                              int64_t capacity) {
  std::map<int32_t, int64_t> of_owner;
  std::vector<RoundBytes> sums(index(world));
  for (const RoundItem& item : items) {
    ++of_owner[item.owner()];
    for (const RankRoundBytes& b : counter.bytes_of(item.item))
      add_round_bytes(sums[index(b.rank)], b.bytes);
  }
  int64_t most_items = 1, most_bytes = 0;
  for (const auto& [owner, count] : of_owner)
    most_items = std::max(most_items, count);
  for (const RoundBytes& sum : sums)
    most_bytes =
        std::max(most_bytes, *std::max_element(sum.begin(), sum.end()));
  const int64_t full = most_bytes / capacity + (most_bytes % capacity != 0);
  // With as many rounds as an owner has items, each item can have its own
  // round.
  return std::max(std::min<int64_t>(kPipelineRounds, most_items),
                  std::min(full, most_items));
}

bool deal_storage_rounds(const std::vector<RoundItem>& items,
                         RoundCounter& counter, OpenRounds rounds,
                         std::vector<size_t>& round_of) {
  for (size_t i = 0; i < items.size(); ++i)
    if (!rounds.add(items[i], counter.bytes_of(items[i].item), round_of[i]))
      return false;
  return true;
}

// Returns the round of each item, numbered without gaps.
std::vector<size_t> deal_rounds_of(const std::vector<RoundItem>& items,
                                   RoundCounter& counter,
                                   const StoragePlan& plan) {
  const int64_t capacity = plan.options.capacity_bytes;
  std::vector<size_t> round_of(items.size());
  int64_t rounds = fewest_storage_rounds(items, counter, plan.world, capacity);
  while (true) {
    const int64_t counts = std::max<int64_t>(plan.world, std::ssize(items));
    if (rounds > kMostRoundCounts / counts)
      throw UsageError(cat("capacity_bytes ", capacity, ": more than ",
                           kMostRoundCounts / counts,
                           " rounds would be needed; raise it"));
    const OpenRounds open(index(rounds), plan);
    if (deal_storage_rounds(items, counter, open, round_of)) break;
    rounds += 1 + rounds / 8;
  }
  std::vector<size_t> used = round_of;
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (size_t& round : round_of)
    round =
        index(std::lower_bound(used.begin(), used.end(), round) - used.begin());
  return round_of;
}

void decide_rounds_of_class(std::vector<RoundItem>& items,
                            RoundCounter& counter, StoragePlan& plan) {
  if (items.empty()) return;
  std::stable_sort(
      items.begin(), items.end(),
      [](const RoundItem& a, const RoundItem& b) { return a.work > b.work; });
  const std::vector<size_t> rounds = deal_rounds_of(items, counter, plan);
  const size_t matrices = plan.matrices.size();
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t item = items[i].item;
    (item < matrices ? plan.matrices[item].round
                     : plan.elements[item - matrices].round) =
        static_cast<int32_t>(rounds[i]);
  }
}

}  // namespace

const std::vector<RankRoundBytes>& RoundCounter::bytes_of(size_t item) {
  counted_.clear();
  for (const Holder& holder : basis_.holders()[item]) {
    place_[index(holder.rank)] = counted_.size();
    counted_.push_back({holder.rank, {}});
  }
  const auto at = [&](int32_t rank) -> RoundBytes& {
    return counted_[place_[index(rank)]].bytes;
  };
  basis_.each_message(
      item, [&](Collective collective, int32_t from, int32_t to, int64_t n) {
        if (collective >= Collective::kTeamSums) return;
        const bool gather = collective == Collective::kGather;
        // A broadcast is sent by its root only once.
        if (collective != Collective::kBroadcast) at(from)[gather ? 0 : 2] += n;
        at(to)[gather ? 1 : 3] += n;
      });
  return counted_;
}

void decide_rounds(const StorageBasis& basis, StoragePlan& plan) {
  std::vector<std::vector<RoundItem>> of_class(plan.classes.size());
  for (size_t i = 0; i < basis.holders().size(); ++i) {
    const bool matrix = basis.is_matrix(i);
    if (matrix && basis.holders()[i].size() == 1) {
      plan.matrices[i].round = -1;
      continue;
    }
    of_class[index(basis.class_of(i))].push_back(
        {i, basis.owners_of(i), basis.line_of(i),
         matrix ? basis.work_of(i) : 0});
  }
  RoundCounter counter(basis, plan.world);
  for (std::vector<RoundItem>& items : of_class)
    decide_rounds_of_class(items, counter, plan);
  count_storage_rounds(plan);
}

}  // namespace canzona::plan

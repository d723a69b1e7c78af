#include "canzona/plan/strategies/strategy.h"

#include <algorithm>
#include <map>

#include "canzona/plan/layout/layout.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/search/instances.h"
#include "canzona/plan/search/joint.h"
#include "canzona/plan/search/owners.h"

namespace canzona::plan {
namespace {

// The number of homes that may be dealt on trial if tensors hold several
// matrices.
constexpr int64_t kSplitBudget = 3000;
// The number of pairs of tensors that may be compared if byte limits overruled
// the search.
constexpr int64_t kSwapBudget = 50'000'000;

// One pipeline stage: all its buffers share the same ranks and loads.
class Stage {
 public:
  Stage(const Problem& p, int32_t stage, Assignment& a)
      : p_(p), a_(a), homes_(static_cast<size_t>(p.grid.homes())) {
    for (size_t b = 0; b < p.buckets.size(); ++b) {
      if (buffer(p.buckets[b]).stage != stage) continue;
      buckets_.push_back(b);
      for (int32_t t : p.buckets[b].matrix_tensors) {
        tensors_.push_back(t);
        num_matrices_ += static_cast<size_t>(p.num_matrices(t));
      }
    }
  }

  void run() {
    if (tensors_.empty()) return;
    if (num_matrices_ <= kExactItems && ranks() <= kExactRanks &&
        assign_exactly()) {
      return;
    }
    classify();
    whole_ = num_matrices_ == tensors_.size();
    // If bytes are bounded, takes the first attempt whose tensors can be placed
    // as the search dealt them; if there is none, takes the best attempt.
    std::optional<Assignment> best;
    int64_t least = INT64_MAX;
    for (const Budgets& budgets : attempts()) {
      attempt(budgets);
      const int64_t reached = objective();
      if (!best || reached < least) {
        least = reached;
        best = a_;
      }
      if (!overruled()) break;
    }
    a_ = *std::move(best);
  }

 private:
  const Buffer& buffer(const OpenBucket& bucket) const {
    return p_.buffers[static_cast<size_t>(bucket.buffer)];
  }
  const Buffer& buffer_of(int32_t t) const {
    return p_
        .buffers[static_cast<size_t>(p_.buffer_of[static_cast<size_t>(t)])];
  }
  size_t ranks() const { return homes_ * static_cast<size_t>(p_.grid.tp); }

  // Homes of one ep coordinate form a zone; without expert parallelism all
  // homes do.
  int32_t zone_of_home(size_t home) const {
    const auto h = static_cast<int32_t>(home);
    return coordinates_of(p_.grid, p_.grid.rank(0, h, 0)).ep;
  }
  std::vector<int32_t> zones(int32_t ranks_per_home) const {
    std::vector<int32_t> out;
    for (size_t h = 0; h < homes_; ++h) {
      out.insert(out.end(), static_cast<size_t>(ranks_per_home),
                 zone_of_home(h));
    }
    return out;
  }

  std::vector<int32_t> homes_of_ranks() const {
    std::vector<int32_t> out;
    for (int32_t r = 0; r < p_.grid.ranks_per_stage(); ++r)
      out.push_back(coordinates_of(p_.grid, r).home);
    return out;
  }

  std::vector<int64_t> shards(const OpenBucket& bucket) const {
    std::vector<int64_t> out;
    for (int32_t t : bucket.matrix_tensors) {
      out.push_back(p_.shard_elements[static_cast<size_t>(t)]);
    }
    return out;
  }

  bool assign_exactly() {
    ExactCase c;
    c.steps = p_.steps();
    c.zones = zones(p_.grid.tp);
    c.homes = homes_of_ranks();
    std::vector<int32_t> matrices;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const OpenBucket& bucket = p_.buckets[buckets_[i]];
      c.caps.push_back(reachable_bucket_cap(
          shards(bucket), buffer(bucket).num_homes, *p_.options.alpha));
      for (int32_t t : bucket.matrix_tensors) {
        add_items(t, static_cast<int32_t>(i), c, matrices);
      }
    }
    const auto ranks = solve_exactly(c);
    if (!ranks) return false;
    for (size_t i = 0; i < matrices.size(); ++i) {
      set_owner(matrices[i], (*ranks)[i]);
    }
    return true;
  }

  void add_items(int32_t t, int32_t bucket, ExactCase& c,
                 std::vector<int32_t>& matrices) const {
    for (int32_t m = p_.first_matrix[static_cast<size_t>(t)];
         m < p_.first_matrix[static_cast<size_t>(t) + 1]; ++m) {
      c.items.push_back({p_.load_of(m), t, bucket,
                         p_.shard_elements[static_cast<size_t>(t)],
                         buffer_of(t).ep});
      matrices.push_back(m);
    }
  }

  // `rank` counts the ranks of the stage.
  void set_owner(int32_t matrix, int32_t rank) {
    const int32_t t = p_.matrices[static_cast<size_t>(matrix)].tensor;
    const Coordinates at = coordinates_of(p_.grid, rank);
    a_.home[static_cast<size_t>(t)] = at.home_in(buffer_of(t));
    a_.owner[static_cast<size_t>(matrix)] = at.t;
  }

  // Tensors with equal loads, elements, bytes and zone are one class.
  void classify() {
    std::map<std::vector<int64_t>, int32_t> known;
    class_of_.assign(p_.model.tensors.size(), -1);
    for (int32_t t : tensors_) {
      const std::vector<int64_t> key = describe(t);
      const auto [it, fresh] =
          known.emplace(key, static_cast<int32_t>(classes_.size()));
      if (fresh) {
        classes_.push_back(make_class(t));
        matrix_loads_.push_back(loads_of_matrices(t));
      }
      class_of_[static_cast<size_t>(t)] = it->second;
      ++classes_[static_cast<size_t>(it->second)].count;
    }
  }

  std::vector<int64_t> describe(int32_t t) const {
    const auto i = static_cast<size_t>(t);
    std::vector<int64_t> key{buffer_of(t).ep, p_.shard_elements[i],
                             p_.home_bytes[i]};
    for (int32_t m = p_.first_matrix[i]; m < p_.first_matrix[i + 1]; ++m) {
      const MatrixCost& w = p_.weights[static_cast<size_t>(m)];
      key.push_back(w.every_step.value());
      key.push_back(w.refresh.value());
      key.push_back(p_.phase[static_cast<size_t>(m)]);
      key.push_back(p_.owner_bytes[static_cast<size_t>(m)]);
    }
    return key;
  }

  ItemClass make_class(int32_t t) const {
    const auto i = static_cast<size_t>(t);
    ItemClass c;
    c.load.assign(p_.steps().size(), 0);
    c.elements = p_.shard_elements[i];
    c.home_bytes = p_.home_bytes[i] * p_.grid.tp;
    c.zone = buffer_of(t).ep;
    for (int32_t m = p_.first_matrix[i]; m < p_.first_matrix[i + 1]; ++m) {
      const std::vector<int64_t> load = p_.load_of(m);
      for (size_t d = 0; d < load.size(); ++d) c.load[d] += load[d];
      c.owner_bytes += p_.owner_bytes[static_cast<size_t>(m)];
    }
    return c;
  }

  std::vector<std::vector<int64_t>> loads_of_matrices(int32_t t) const {
    std::vector<std::vector<int64_t>> loads;
    for (int32_t m = p_.first_matrix[static_cast<size_t>(t)];
         m < p_.first_matrix[static_cast<size_t>(t) + 1]; ++m) {
      loads.push_back(p_.load_of(m));
    }
    return loads;
  }

  std::vector<Budgets> attempts() const {
    const int64_t memory = memory_for_states();
    const double alpha = *p_.options.alpha;
    if (alpha >= 1) return {{0, memory, false}};
    const double most = 1 / (1 - alpha);
    return {{0.9 + 0.1 * most, memory, true},
            {0.5 + 0.5 * most, memory, true},
            {0.5 + 0.5 * most, memory, false},
            {most, memory, false}};
  }

  void attempt(const Budgets& budgets) {
    changed_.assign(homes_, false);
    bundles_.emplace(whole_ ? search(p_.grid.tp, budgets)
                            : search_split(budgets));
    for (size_t f = 0; f < p_.buffers.size(); ++f) place(f);
    deal_tp_ranks();
    if (whole_ && overruled()) swap_placed();
  }

  bool overruled() const {
    return std::find(changed_.begin(), changed_.end(), true) != changed_.end();
  }

  // Returns bundles per rank, or per home if tensors hold several matrices.
  Bundles search(int32_t ranks_per_home, const Budgets& budgets) {
    ranks_per_home_ = static_cast<size_t>(ranks_per_home);
    return search_bundles(classes_, p_.steps(), zones(ranks_per_home),
                          ranks_per_home, budgets);
  }

  // Returns the better result of two starts: homes level in total load, or
  // matrices dealt longest first.
  Bundles search_split(const Budgets& budgets) {
    Bundles level = search(1, budgets);
    Bundles dealt(classes_, p_.steps(), zones(1));
    deal_split_longest_first(dealt, matrix_loads_, p_.grid.tp);
    const int64_t a =
        improve_split_homes(level, matrix_loads_, p_.grid.tp, kSplitBudget);
    const int64_t b =
        improve_split_homes(dealt, matrix_loads_, p_.grid.tp, kSplitBudget);
    return b < a ? dealt : level;
  }

  // Returns the sum over a period of the largest load of each step.
  int64_t objective() const {
    const std::vector<int64_t> steps = p_.steps();
    std::vector<int64_t> loads(ranks() * steps.size(), 0);
    for (int32_t t : tensors_) {
      for (int32_t m = p_.first_matrix[static_cast<size_t>(t)];
           m < p_.first_matrix[static_cast<size_t>(t) + 1]; ++m) {
        const std::vector<int64_t> load = p_.load_of(m);
        for (size_t d = 0; d < load.size(); ++d) {
          loads[rank_of(t, m) * load.size() + d] += load[d];
        }
      }
    }
    int64_t sum = 0;
    for (size_t d = 0; d < steps.size(); ++d) {
      int64_t most = 0;
      for (size_t r = 0; r < ranks(); ++r) {
        most = std::max(most, loads[r * steps.size() + d]);
      }
      sum += steps[d] * most;
    }
    return sum;
  }

  size_t rank_of(int32_t t, int32_t m) const {
    const int32_t home = stage_home(p_, t, a_.home[static_cast<size_t>(t)]);
    return static_cast<size_t>(
        p_.grid.rank(0, home, a_.owner[static_cast<size_t>(m)]));
  }

  // Swaps single tensors in homes where byte limits overruled the bundles.
  void swap_placed() {
    if (p_.steps().size() != 1) return;
    DealtStage stage;
    stage.zones = zones(p_.grid.tp);
    stage.homes = homes_of_ranks();
    std::vector<int32_t> matrices;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const OpenBucket& bucket = p_.buckets[buckets_[i]];
      stage.caps.push_back(reachable_bucket_cap(
          shards(bucket), buffer(bucket).num_homes, *p_.options.alpha));
      for (int32_t t : bucket.matrix_tensors) {
        const int32_t m = p_.first_matrix[static_cast<size_t>(t)];
        stage.tensors.push_back({p_.load_of(m)[0],
                                 p_.shard_elements[static_cast<size_t>(t)], i,
                                 buffer_of(t).ep, rank_of(t, m)});
        matrices.push_back(m);
      }
    }
    swap_tensors(stage, kSwapBudget);
    for (size_t i = 0; i < matrices.size(); ++i) {
      set_owner(matrices[i], static_cast<int32_t>(stage.tensors[i].rank));
    }
  }

  // Returns what the cap leaves for states at all tp ranks of a home, after
  // parameters, gradients and the slots of a round of the largest matrix.
  int64_t memory_for_states() const {
    if (p_.options.memory_cap_bytes == 0) return INT64_MAX;
    int64_t fixed = 0, largest = 0;
    for (size_t b : buckets_) {
      const OpenBucket& bucket = p_.buckets[b];
      for (const auto* list : {&bucket.matrix_tensors, &bucket.adamw_tensors}) {
        for (int32_t t : *list) {
          const auto i = static_cast<size_t>(t);
          fixed += resting_bytes(p_.shard_elements[i]);
          largest = std::max(largest, p_.model.tensors[i].elements());
        }
      }
    }
    const int64_t slots =
        p_.grid.tp > 1 ? kExchangeSlots * largest * kBytesPerFp32 : 0;
    const int64_t left = p_.options.memory_cap_bytes - fixed - slots;
    return std::max<int64_t>(left, 0) * p_.grid.tp;
  }
  // Returns the bytes of a shard's gradients and parameters on one rank.
  int64_t resting_bytes(int64_t elements) const {
    const ZeroSizes& zero = p_.options.zero.sizes;
    return elements * kBytesPerFp32 / zero.z2 +
           elements * size_of(p_.options.parameters) / zero.z3;
  }

  // Returns how many of each class the homes of a buffer take.
  std::vector<std::vector<Demand>> demands(const Buffer& f) const {
    std::vector<std::vector<Demand>> out(classes_.size());
    for (int32_t h = 0; h < f.num_homes; ++h) {
      const size_t first =
          static_cast<size_t>(in_stage(f, h)) * ranks_per_home_;
      for (size_t r = first; r < first + ranks_per_home_; ++r) {
        for (const ClassCount& c : bundles_->bundle(r)) {
          const auto i = static_cast<size_t>(c.item_class);
          if (classes_[i].zone != f.ep) continue;
          if (out[i].empty() || out[i].back().home != h)
            out[i].push_back({h, 0});
          out[i].back().count += c.count;
        }
      }
    }
    return out;
  }

  int32_t in_stage(const Buffer& f, int32_t h) const {
    return f.ep < 0 ? h : p_.grid.home_of_expert(h, f.ep);
  }

  std::vector<int64_t> home_loads(const Buffer& f) const {
    std::vector<int64_t> loads;
    for (int32_t h = 0; h < f.num_homes; ++h) {
      const size_t first =
          static_cast<size_t>(in_stage(f, h)) * ranks_per_home_;
      loads.push_back(0);
      for (size_t r = first; r < first + ranks_per_home_; ++r) {
        loads.back() += bundles_->period_load(r);
      }
    }
    return loads;
  }

  void place(size_t f) {
    std::vector<InstanceBucket> open;
    for (size_t b : buckets_) {
      const OpenBucket& bucket = p_.buckets[b];
      if (static_cast<size_t>(bucket.buffer) != f) continue;
      open.push_back(instances(bucket));
    }
    if (open.empty()) return;
    const Buffer& buffer = p_.buffers[f];
    const Placement placed =
        place_instances(open, demands(buffer), home_loads(buffer));
    for (int32_t h = 0; h < buffer.num_homes; ++h) {
      if (placed.changed[static_cast<size_t>(h)]) {
        changed_[static_cast<size_t>(in_stage(buffer, h))] = true;
      }
    }
    for (size_t b = 0; b < open.size(); ++b) {
      for (size_t i = 0; i < open[b].instances.size(); ++i) {
        a_.home[static_cast<size_t>(open[b].instances[i].tensor)] =
            placed.home[b][i];
      }
    }
  }

  InstanceBucket instances(const OpenBucket& bucket) const {
    InstanceBucket out;
    const std::vector<int64_t> sizes = shards(bucket);
    const double alpha = *p_.options.alpha;
    out.cap = bucket_cap(sizes, buffer(bucket).num_homes, alpha);
    out.reachable_cap =
        reachable_bucket_cap(sizes, buffer(bucket).num_homes, alpha);
    for (int32_t t : bucket.matrix_tensors) {
      out.instances.push_back({t, class_of_[static_cast<size_t>(t)],
                               p_.shard_elements[static_cast<size_t>(t)],
                               p_.period_weight(t)});
    }
    return out;
  }

  // Assigns owners inside each home: those of the bundles, or new ones if
  // tensors hold several matrices or byte limits overruled the bundles.
  void deal_tp_ranks() {
    std::vector<std::vector<int32_t>> by_home(homes_);
    for (int32_t t : tensors_) {
      const int32_t home = stage_home(p_, t, a_.home[static_cast<size_t>(t)]);
      by_home[static_cast<size_t>(home)].push_back(t);
    }
    for (size_t h = 0; h < homes_; ++h) {
      if (whole_ && !changed_[h]) {
        follow_bundles(h, by_home[h]);
      } else {
        deal_owners(p_, matrices_of(by_home[h]), a_);
      }
    }
  }

  std::vector<int32_t> matrices_of(const std::vector<int32_t>& tensors) const {
    std::vector<int32_t> out;
    for (int32_t t : tensors) {
      for (int32_t m = p_.first_matrix[static_cast<size_t>(t)];
           m < p_.first_matrix[static_cast<size_t>(t) + 1]; ++m) {
        out.push_back(m);
      }
    }
    return out;
  }

  void follow_bundles(size_t home, const std::vector<int32_t>& tensors) {
    std::map<int32_t, std::vector<int32_t>> members;
    for (int32_t t : tensors) {
      members[class_of_[static_cast<size_t>(t)]].push_back(
          p_.first_matrix[static_cast<size_t>(t)]);
    }
    for (size_t t = 0; t < ranks_per_home_; ++t) {
      for (const ClassCount& c : bundles_->bundle(home * ranks_per_home_ + t)) {
        std::vector<int32_t>& list = members[c.item_class];
        for (int32_t i = 0; i < c.count; ++i) {
          a_.owner[static_cast<size_t>(list.back())] = static_cast<int32_t>(t);
          list.pop_back();
        }
      }
    }
  }

  const Problem& p_;
  Assignment& a_;
  size_t homes_;
  std::vector<size_t> buckets_;
  std::vector<int32_t> tensors_;
  size_t num_matrices_ = 0;
  bool whole_ = true;          // every tensor is one matrix
  std::vector<bool> changed_;  // homes where bytes overruled the bundles
  size_t ranks_per_home_ = 1;
  std::vector<ItemClass> classes_;
  MatrixLoads matrix_loads_;       // per class
  std::vector<int32_t> class_of_;  // per tensor
  std::optional<Bundles> bundles_;
};

}  // namespace

void assign_balanced(const Problem& p, Assignment& a) {
  for (int32_t stage = 0; stage < p.grid.pp; ++stage) Stage(p, stage, a).run();
}

}  // namespace canzona::plan

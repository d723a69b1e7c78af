#include "canzona/plan/search/owners.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "canzona/base/error.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/plan/search/joint.h"
#include "canzona/plan/search/teams.h"

namespace canzona::plan {

AlikeItems::AlikeItems(const std::vector<ItemClass>& kinds) {
  std::map<std::vector<int64_t>, std::vector<size_t>> alike;
  for (size_t i = 0; i < kinds.size(); ++i) {
    std::vector<int64_t> key = kinds[i].load;
    key.push_back(kinds[i].owner_bytes);
    key.push_back(kinds[i].zone);
    alike[key].push_back(i);
  }
  for (auto& [key, list] : alike) {
    classes_.push_back(kinds[list.front()]);
    classes_.back().count = std::ssize(list);
    members_.push_back(std::move(list));
  }
}

std::vector<int32_t> AlikeItems::ranks(const Bundles& bundles) const {
  std::vector<std::vector<size_t>> left = members_;
  size_t num_items = 0;
  for (const auto& list : left) num_items += list.size();
  std::vector<int32_t> out(num_items);
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    for (const ClassCount& c : bundles.bundle(r)) {
      auto& list = left[static_cast<size_t>(c.item_class)];
      for (int32_t i = 0; i < c.count; ++i) {
        out[list.back()] = static_cast<int32_t>(r);
        list.pop_back();
      }
    }
  }
  return out;
}

void deal_owners(const Problem& p, std::span<const int32_t> matrices,
                 Assignment& a) {
  std::vector<ItemClass> kinds;
  for (int32_t m : matrices) {
    ItemClass& kind = kinds.emplace_back();
    kind.load = p.load_of(m);
    kind.owner_bytes = p.owner_bytes[static_cast<size_t>(m)];
  }
  const AlikeItems alike(kinds);
  const std::vector<int32_t> zones(static_cast<size_t>(p.grid.tp), 0);
  const std::vector<int32_t> ranks =
      alike.ranks(search_bundles(alike.classes(), p.steps(), zones, 1, {}));
  for (size_t i = 0; i < matrices.size(); ++i)
    a.owner[static_cast<size_t>(matrices[i])] = ranks[i];
}

namespace {

// The loads of a home's ranks, in ordinary steps and in refreshes.
class HomeLoads {
 public:
  explicit HomeLoads(const Problem& p)
      : p_(p),
        every_step_(index(p.grid.tp), 0),
        refresh_(index(p.grid.tp),
                 std::vector<int64_t>(index(p.rule.phases()), 0)) {}

  void add(int32_t t, const MatrixCost& cost, int32_t phase) {
    every_step_[index(t)] += cost.every_step.value();
    refresh_[index(t)][index(phase)] += cost.refresh.value();
  }
  // Returns a rank's load in the step of a phase's refresh, then in others.
  auto of(int32_t t, int32_t phase) const {
    const int64_t every_step = every_step_[index(t)];
    return std::pair(every_step + refresh_[index(t)][index(phase)], every_step);
  }
  // Returns the sum over a period of the largest load of each step.
  int64_t makespan() const {
    const int64_t every_step = std::ranges::max(every_step_);
    if (p_.rule.period() == 1) return of_slowest(0);
    int64_t sum = every_step * (p_.rule.period() - p_.rule.phases());
    for (int32_t phase = 0; phase < p_.rule.phases(); ++phase)
      sum += of_slowest(phase);
    return sum;
  }

 private:
  int64_t of_slowest(int32_t phase) const {
    int64_t most = 0;
    for (int32_t t = 0; t < p_.grid.tp; ++t)
      most = std::max(most, of(t, phase).first);
    return most;
  }

  const Problem& p_;
  std::vector<int64_t> every_step_;
  std::vector<std::vector<int64_t>> refresh_;  // [t][phase]
};

// Blocks of a home's matrices with their owners, and the rounds they lie in.
struct BlockDeal {
  std::vector<std::vector<int32_t>> owners;  // by matrix and block
  std::vector<int32_t> rounds;               // by matrix
  int64_t makespan = 0;
};

// What tells homes apart: the kinds and phases of their matrices, then the
// numbers of their nodes.
using BlockHomeKind =
    std::pair<std::vector<std::pair<int32_t, int32_t>>, std::vector<int32_t>>;

class BlockSearch {
 public:
  BlockSearch(const PlanPart& part, const Problem& p, Assignment& a)
      : part_(part),
        p_(p),
        a_(a),
        nodes_(nodes_for_teams(part)),
        most_(largest_team(p.options, p.grid.tp)) {}

  void run() {
    homes_ = matrices_by_home(p_, a_);
    int64_t before = 0, after = 0;
    std::vector<int64_t> whole;
    for (size_t h = 0; h < homes_.size(); ++h) {
      sort_home(h);
      whole.push_back(whole_makespan(h));
      before = std::max(before, whole.back());
      after = std::max(after, std::min(whole.back(), deal_of(h).makespan));
    }
    if (static_cast<double>(after) > kWorthTeams * static_cast<double>(before))
      return;
    for (size_t h = 0; h < homes_.size(); ++h)
      if (whole[h] > after) take(h);
  }

 private:
  const Matrix& matrix(int32_t m) const { return p_.matrices[index(m)]; }
  const Tensor& tensor(int32_t m) const {
    return p_.model.tensors[index(matrix(m).tensor)];
  }
  const MatrixBlocks& blocks(int32_t m) {
    const MatrixShape shape = shape_of(matrix(m));
    return blocks_.try_emplace(shape, p_.rule, shape).first->second;
  }
  int32_t phase(int32_t m) const { return p_.phase[index(m)]; }

  // Sorts a home's matrices so that matrices of one kind are adjacent, in plan
  // order.
  void sort_home(size_t h) {
    std::vector<int32_t>& matrices = homes_[h];
    const auto kind = [&](int32_t m) {
      return std::pair(kind_of(m), phase(m));
    };
    std::ranges::stable_sort(matrices, {}, kind);
    BlockHomeKind& home = kinds_.emplace_back();
    for (const int32_t m : matrices) home.first.push_back(kind(m));
    const size_t first = h * index(p_.grid.tp);
    for (size_t t = 0; t < index(p_.grid.tp); ++t)
      home.second.push_back(nodes_[first + t] - nodes_[first]);
  }
  // Returns the number of a matrix's kind: matrices of one kind have the same
  // shape and the same layout on the ranks of a home.
  int32_t kind_of(int32_t m) {
    const Matrix& of = matrix(m);
    std::vector<int64_t> key = {
        of.rows,         of.cols,
        of.column_heads, static_cast<int64_t>(tensor(m).cut),
        of.section,      of.first_row};
    for (const Section& section : tensor(m).sections)
      for (const int64_t number : {section.rows.first, section.rows.run,
                                   section.rows.stride, section.rows.count})
        key.push_back(number);
    return known_
        .try_emplace(std::move(key), static_cast<int32_t>(known_.size()))
        .first->second;
  }

  int64_t whole_makespan(size_t h) const {
    HomeLoads loads(p_);
    for (const int32_t m : homes_[h])
      loads.add(a_.owner[index(m)], p_.costs[index(m)], phase(m));
    return loads.makespan();
  }

  const BlockDeal& deal_of(size_t h) {
    const auto [found, is_new] = deals_.try_emplace(kinds_[h]);
    if (is_new) found->second = deal(homes_[h]);
    return found->second;
  }

  // Deals blocks, the longest first, each to the rank with the least work in
  // the step of its refresh.
  BlockDeal deal(const std::vector<int32_t>& matrices) {
    using Item = std::tuple<int64_t, size_t, int32_t>;  // work, matrix, block
    std::vector<Item> items;
    BlockDeal out;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const int32_t count = blocks(matrices[i]).count();
      out.owners.emplace_back(index(count), 0);
      for (int32_t b = 0; b < count; ++b)
        items.emplace_back(-work_of(matrices[i], b), i, b);
    }
    std::ranges::sort(items);
    HomeLoads loads(p_);
    std::vector<std::set<int32_t>> owners(matrices.size());
    for (const auto& [work, i, b] : items) {
      const int32_t m = matrices[i];
      const int32_t t = least_loaded(loads, phase(m), owners[i]);
      owners[i].insert(t);
      out.owners[i][index(b)] = t;
      loads.add(t, blocks(m).cost(p_.costs[index(m)], b), phase(m));
    }
    for (size_t i = 0; i < matrices.size(); ++i)
      put_side_by_side(matrices[i], out.owners[i]);
    out.makespan = loads.makespan();
    return out;
  }
  int64_t work_of(int32_t m, int32_t b) {
    const MatrixCost cost = blocks(m).cost(p_.costs[index(m)], b);
    return cost.every_step.value() * p_.rule.period() + cost.refresh.value();
  }

  // Considers all ranks or, if the matrix already has as many owners as it may,
  // only those.
  int32_t least_loaded(const HomeLoads& loads, int32_t phase,
                       const std::set<int32_t>& owners) const {
    const bool full = std::ssize(owners) >= most_;
    int32_t best = -1;
    for (int32_t t = 0; t < p_.grid.tp; ++t)
      if ((!full || owners.contains(t)) &&
          (best < 0 || loads.of(t, phase) < loads.of(best, phase)))
        best = t;
    return best;
  }

  // Permutes blocks of the same shape among their owners, keeping each owner's
  // number of blocks, so that ranks own blocks that they store.
  void put_side_by_side(int32_t m, std::vector<int32_t>& owners) {
    std::map<MatrixShape, std::vector<int32_t>> alike;
    for (const int32_t b : by_storage(m))
      alike[blocks(m).shape_of(b)].push_back(b);
    for (const auto& [shape, numbers] : alike) {
      std::vector<int32_t> ranks;
      for (const int32_t b : numbers) ranks.push_back(owners[index(b)]);
      std::ranges::sort(ranks);
      for (size_t i = 0; i < numbers.size(); ++i)
        owners[index(numbers[i])] = ranks[i];
    }
  }

  // Returns the blocks of a matrix, sorted by the rank that stores most of
  // each.
  const std::vector<int32_t>& by_storage(int32_t m) {
    const auto [found, is_new] = by_storage_.try_emplace(kind_of(m));
    if (!is_new) return found->second;
    std::vector<std::ptrdiff_t> rank;
    for (int32_t b = 0; b < blocks(m).count(); ++b) {
      const std::vector<int64_t> stored =
          elements_within(part_, m, blocks(m).at(b));
      rank.push_back(std::ranges::max_element(stored) - stored.begin());
      found->second.push_back(b);
    }
    std::ranges::stable_sort(found->second, {},
                             [&](int32_t b) { return rank[index(b)]; });
    return found->second;
  }

  // Returns rounds with work as even as possible, so that some matrices are in
  // transit while others are computed.
  std::vector<int32_t> rounds_of(size_t h, const BlockDeal& deal) const {
    std::vector<std::vector<int32_t>> ranks;
    for (const std::vector<int32_t>& owners : deal.owners)
      ranks.push_back(distinct(owners));
    std::vector<RoundJob> jobs;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int32_t m = homes_[h][i];
      const auto count = std::ssize(ranks[i]);
      const int64_t work = p_.costs[index(m)].every_step.value() / count;
      jobs.push_back({ranks[i], work, work, exchange_bytes(p_, m) / count});
    }
    return deal_team_rounds(jobs, p_.grid.tp, kPipelineRounds,
                            p_.options.capacity_bytes);
  }

  void take(size_t h) {
    BlockDeal& deal = deals_.at(kinds_[h]);
    if (deal.rounds.empty()) deal.rounds = rounds_of(h, deal);
    for (size_t i = 0; i < homes_[h].size(); ++i) {
      const int32_t m = homes_[h][i];
      a_.owner[index(m)] = deal.owners[i].front();
      a_.micro_group[index(m)] = deal.rounds[i];
      if (distinct(deal.owners[i]).size() > 1) a_.teams[m] = deal.owners[i];
    }
  }

  const PlanPart& part_;
  const Problem& p_;
  Assignment& a_;
  std::vector<int32_t> nodes_;  // of the grid's ranks
  int64_t most_;                // ranks that may own blocks of one matrix
  std::vector<std::vector<int32_t>> homes_;  // matrices, alike ones together
  std::vector<BlockHomeKind> kinds_;         // by home
  std::map<std::vector<int64_t>, int32_t> known_;
  std::map<int32_t, std::vector<int32_t>> by_storage_;  // by kind of matrix
  std::map<MatrixShape, MatrixBlocks> blocks_;
  std::map<BlockHomeKind, BlockDeal> deals_;
};

}  // namespace

void own_blocks(const PlanPart& part, const Problem& p, Assignment& a) {
  if (largest_team(p.options, p.grid.tp) == 1 ||
      p.options.micro_groups != "balanced" || p.matrices.empty() ||
      !has_blocks(part, p.rule))
    return;
  BlockSearch(part, p, a).run();
}

}  // namespace canzona::plan

#include "canzona/plan/search/teams.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "canzona/base/check.h"
#include "canzona/base/error.h"

namespace canzona::plan {
namespace {

// Deals of one home tried beside the first ones, and pairs of jobs looked at
// in one of them.
constexpr int kMoreDeals = 96;
constexpr int64_t kPairBudget = 2'000'000;

// The number of its size that each matrix has.
using SizeChoice = std::vector<size_t>;

// A whole matrix, or the part of one that one rank of its team has.
struct TeamJob {
  size_t matrix = 0;
  int64_t work = 0;
  bool is_head = true;  // of a team, or the only one
  int32_t rank = -1;
};

// The result of a deal. Of two with the same makespan, the one that fewer ranks
// and paths hold at it is closer to an improvement.
struct Reached {
  int64_t makespan = 0;
  int64_t number = 0;
  friend auto operator<=>(const Reached&, const Reached&) = default;
};

// Jobs dealt to the ranks of a home, for given sizes of teams.
class JobDealing {
 public:
  JobDealing(const TeamHome& home, const SizeChoice& choice)
      : home_(home),
        choice_(choice),
        loads_(home.nodes.size(), 0),
        promised_(home.nodes.size(), 0),
        node_ranks_(home.nodes.size(), 0) {
    for (const int32_t node : home.nodes) ++node_ranks_[index(node)];
    for (size_t m = 0; m < choice.size(); ++m) {
      const TeamSize& size = size_of(m);
      longest_path_ = std::max(longest_path_, size.path);
      jobs_.push_back({m, size.at_head(), true});
      for (int32_t i = 1; i < size.size; ++i)
        jobs_.push_back({m, size.member, false});
    }
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [](const TeamJob& a, const TeamJob& b) {
                       if (a.work != b.work) return a.work > b.work;
                       return a.is_head > b.is_head;
                     });
    of_matrix_.resize(choice.size());
    for (size_t j = 0; j < jobs_.size(); ++j)
      of_matrix_[jobs_[j].matrix].push_back(j);
  }

  void run() {
    for (TeamJob& job : jobs_) {
      const int32_t rank = least_loaded(job);
      if (job.is_head)
        promised_[index(node(rank))] += size_of(job.matrix).work();
      put(job, rank);
    }
    int64_t budget = kPairBudget;
    while (relieve_busiest(budget)) {
    }
  }

  // The makespan, and how many ranks and matrices have it.
  Reached reached() const {
    Reached out;
    out.makespan = std::max(longest_path_, loads_[busiest()]);
    out.number = std::count(loads_.begin(), loads_.end(), out.makespan);
    for (size_t m = 0; m < choice_.size(); ++m)
      out.number += size_of(m).path == out.makespan;
    return out;
  }

  // Matrices that keep the makespan from falling.
  std::vector<size_t> critical_matrices() const {
    std::set<size_t> out;
    const int64_t most = reached().makespan;
    for (size_t m = 0; m < choice_.size(); ++m)
      if (size_of(m).path == most) out.insert(m);
    const auto rank = static_cast<int32_t>(busiest());
    if (loads_[busiest()] == most)
      for (const TeamJob& job : jobs_)
        if (job.rank == rank) out.insert(job.matrix);
    return {out.begin(), out.end()};
  }

  TeamDeal deal() const {
    TeamDeal out;
    out.makespan = reached().makespan;
    for (size_t m = 0; m < choice_.size(); ++m) {
      std::vector<int32_t> members;
      int32_t head = -1;
      for (const size_t j : of_matrix_[m]) {
        if (jobs_[j].is_head)
          head = jobs_[j].rank;
        else
          members.push_back(jobs_[j].rank);
      }
      std::sort(members.begin(), members.end());
      members.insert(members.begin(), head);
      if (members.size() > 1) {
        ++out.num_teams;
        out.team_ranks += static_cast<int32_t>(members.size());
      }
      out.owners.push_back(std::move(members));
    }
    return out;
  }

 private:
  const TeamSize& size_of(size_t matrix) const {
    return home_.matrices[matrix][choice_[matrix]];
  }

  void put(TeamJob& job, int32_t rank) {
    if (job.rank >= 0) loads_[index(job.rank)] -= job.work;
    job.rank = rank;
    loads_[index(rank)] += job.work;
  }

  // True if `rank` is on the node of the job's team and has no other job of it.
  bool may_have(const TeamJob& job, int32_t rank) const {
    const std::vector<size_t>& team = of_matrix_[job.matrix];
    if (team.size() == 1) return true;
    bool alone = true;
    for (const size_t j : team) {
      const TeamJob& other = jobs_[j];
      if (&other == &job || other.rank < 0) continue;
      if (node(other.rank) != node(rank)) return false;
      if (other.rank == rank) return false;
      alone = false;
    }
    return !alone || ranks_of_node(node(rank)) >= std::ssize(team);
  }

  int32_t node(int32_t rank) const { return home_.nodes[index(rank)]; }
  int64_t ranks_of_node(int32_t node) const { return node_ranks_[index(node)]; }

  // Loads are what ranks have, and at least what their node is promised: a
  // head decides where all of its team will be.
  int32_t least_loaded(const TeamJob& job) const {
    int32_t best = -1;
    std::pair<int64_t, int64_t> least;
    for (int32_t r = 0; r < std::ssize(loads_); ++r) {
      if (!may_have(job, r)) continue;
      std::pair<int64_t, int64_t> load{loads_[index(r)] + job.work,
                                       loads_[index(r)]};
      if (job.is_head)
        load.first = std::max(load.first, promise(node(r), job.matrix));
      if (best >= 0 && load >= least) continue;
      best = r;
      least = load;
    }
    CANZONA_CHECK(best >= 0, "a team that no node has ranks for");
    return best;
  }

  // The mean load of a node that takes one more matrix.
  int64_t promise(int32_t node, size_t matrix) const {
    return (promised_[index(node)] + size_of(matrix).work()) /
           ranks_of_node(node);
  }

  size_t busiest() const {
    return static_cast<size_t>(std::max_element(loads_.begin(), loads_.end()) -
                               loads_.begin());
  }

  // A job of the busiest rank goes to another one, in exchange for one of its
  // jobs or for none.
  struct Relief {
    TeamJob* job = nullptr;
    TeamJob* back = nullptr;
    int32_t rank = -1;
    int64_t most = 0;  // of both ranks' loads then
  };

  bool relieve_busiest(int64_t& budget) {
    const auto from = static_cast<int32_t>(busiest());
    Relief best;
    best.most = loads_[index(from)];
    for (TeamJob& job : jobs_) {
      if (job.rank != from || job.work == 0) continue;
      if ((budget -= std::ssize(jobs_)) < 0) return false;
      look_for_moves(job, best);
      look_for_swaps(job, best);
    }
    if (best.job == nullptr) return false;
    put(*best.job, best.rank);
    if (best.back != nullptr) put(*best.back, from);
    return true;
  }

  void look_for_moves(TeamJob& job, Relief& best) {
    for (int32_t r = 0; r < std::ssize(loads_); ++r) {
      if (r == job.rank) continue;
      const int64_t most = std::max(loads_[index(job.rank)] - job.work,
                                    loads_[index(r)] + job.work);
      if (most < best.most && may_have(job, r)) best = {&job, nullptr, r, most};
    }
  }

  void look_for_swaps(TeamJob& job, Relief& best) {
    for (TeamJob& back : jobs_) {
      if (back.rank == job.rank || back.work >= job.work) continue;
      const int64_t more = job.work - back.work;
      const int64_t most = std::max(loads_[index(job.rank)] - more,
                                    loads_[index(back.rank)] + more);
      if (most >= best.most) continue;
      const bool same_team = back.matrix == job.matrix;
      if (same_team || (may_have(job, back.rank) && may_have(back, job.rank)))
        best = {&job, &back, back.rank, most};
    }
  }

  const TeamHome& home_;
  const SizeChoice& choice_;
  std::vector<int64_t> loads_;     // by rank
  std::vector<int64_t> promised_;  // by node
  std::vector<int64_t> node_ranks_;
  std::vector<TeamJob> jobs_;  // longest first
  std::vector<std::vector<size_t>> of_matrix_;
  int64_t longest_path_ = 0;
};

// One target: sizes, a deal, and what other sizes make better.
class TargetSearch {
 public:
  TargetSearch(const TeamHome& home, SizeChoice choice, int& budget)
      : home_(home), choice_(std::move(choice)), budget_(budget) {}

  TeamDeal run() {
    reached_ = try_choice(choice_);
    while (grow()) {
    }
    shrink();
    JobDealing dealing(home_, choice_);
    dealing.run();
    return dealing.deal();
  }

 private:
  Reached try_choice(const SizeChoice& choice) {
    JobDealing dealing(home_, choice);
    dealing.run();
    critical_ = dealing.critical_matrices();
    return dealing.reached();
  }

  // One critical matrix takes its next larger team. Alike ones are tried once.
  bool grow() {
    const std::vector<size_t> critical = critical_;
    std::optional<SizeChoice> best;
    std::vector<size_t> best_critical;
    Reached least = reached_;
    std::set<std::pair<TeamSizes, size_t>> tried;
    for (const size_t m : critical) {
      if (choice_[m] + 1 >= home_.matrices[m].size()) continue;
      if (!tried.emplace(home_.matrices[m], choice_[m]).second) continue;
      if (--budget_ < 0) break;
      SizeChoice other = choice_;
      ++other[m];
      const Reached reached = try_choice(other);
      if (reached >= least) continue;
      least = reached;
      best = std::move(other);
      best_critical = critical_;
    }
    critical_ = best ? best_critical : critical;
    if (!best) return false;
    choice_ = *std::move(best);
    reached_ = least;
    return true;
  }

  // Smaller teams, or none, where the makespan stays.
  void shrink() {
    for (size_t m = 0; m < choice_.size(); ++m) {
      while (choice_[m] > 0 && --budget_ >= 0) {
        SizeChoice other = choice_;
        --other[m];
        if (try_choice(other).makespan > reached_.makespan) break;
        choice_ = std::move(other);
      }
    }
  }

  const TeamHome& home_;
  SizeChoice choice_;
  int& budget_;
  Reached reached_;
  std::vector<size_t> critical_;
};

// The sizes at a target; nothing if a matrix has none.
std::optional<SizeChoice> choice_at(const TeamHome& home, int64_t target) {
  SizeChoice choice;
  for (const TeamSizes& sizes : home.matrices) {
    const TeamSize* size = smallest_that_fits(sizes, target);
    if (size == nullptr) return std::nullopt;
    choice.push_back(static_cast<size_t>(size - sizes.data()));
  }
  return choice;
}

// The bound, and every longer path: between two of them sizes stay the same.
std::set<int64_t> targets_of(const TeamHome& home, int64_t bound) {
  std::set<int64_t> targets{bound};
  for (const TeamSizes& sizes : home.matrices)
    for (const TeamSize& size : sizes)
      if (size.path > bound) targets.insert(size.path);
  return targets;
}

}  // namespace

int64_t team_bound(const TeamHome& home) {
  std::vector<TeamItem> items;
  for (const TeamSizes& sizes : home.matrices) {
    if (items.empty() || items.back().sizes != sizes)
      items.push_back({sizes, 0});
    ++items.back().count;
  }
  return team_bound(items, std::ssize(home.nodes));
}

std::vector<TeamDeal> deal_teams(const TeamHome& home) {
  std::vector<TeamDeal> deals;
  std::set<SizeChoice> seen;
  int64_t best = INT64_MAX;
  int budget = kMoreDeals;
  for (const int64_t target : targets_of(home, team_bound(home))) {
    if (target > best) break;
    std::optional<SizeChoice> choice = choice_at(home, target);
    if (!choice || !seen.insert(*choice).second) continue;
    deals.push_back(TargetSearch(home, *std::move(choice), budget).run());
    best = std::min(best, deals.back().makespan);
  }
  return deals;
}

namespace {

// The work and bytes of every rank in every round.
class RoundLoads {
 public:
  RoundLoads(int32_t num_ranks, int32_t rounds, int64_t capacity)
      : rounds_(index(rounds)),
        capacity_(capacity),
        work_(index(num_ranks) * rounds_, 0),
        bytes_(work_.size(), 0) {}

  // Returns the round that a job fills least; nullopt if none has room.
  std::optional<size_t> best_round(const RoundJob& job) const {
    std::optional<size_t> best;
    for (size_t r = 0; r < rounds_; ++r)
      if (has_room(job, r) &&
          (!best || fullness(job, r) < fullness(job, *best)))
        best = r;
    return best;
  }

  void add(const RoundJob& job, size_t round) {
    for (const int32_t rank : job.ranks) {
      work_[at(rank, round)] += work_of(job, rank);
      bytes_[at(rank, round)] += job.bytes;
    }
  }

 private:
  size_t at(int32_t rank, size_t round) const {
    return index(rank) * rounds_ + round;
  }
  static int64_t work_of(const RoundJob& job, int32_t rank) {
    return rank == job.ranks.front() ? job.at_head : job.at_member;
  }
  bool has_room(const RoundJob& job, size_t round) const {
    return std::all_of(job.ranks.begin(), job.ranks.end(), [&](int32_t rank) {
      return bytes_[at(rank, round)] + job.bytes <= capacity_;
    });
  }
  std::pair<int64_t, int64_t> fullness(const RoundJob& job,
                                       size_t round) const {
    std::pair<int64_t, int64_t> most{-1, -1};
    for (const int32_t rank : job.ranks)
      most =
          std::max(most, round_fullness(round, rounds_, work_[at(rank, round)],
                                        work_of(job, rank)));
    return most;
  }

  size_t rounds_;
  int64_t capacity_;
  std::vector<int64_t> work_, bytes_;  // [rank · rounds + round]
};

std::vector<size_t> largest_first(std::span<const RoundJob> jobs) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return jobs[a].at_head > jobs[b].at_head;
  });
  return order;
}

// Jobs above the capacity come last, each in a round of its own.
std::optional<std::vector<int32_t>> deal_in(std::span<const RoundJob> jobs,
                                            int32_t num_ranks, int32_t rounds,
                                            int64_t capacity) {
  RoundLoads loads(num_ranks, rounds, capacity);
  std::vector<int32_t> out(jobs.size(), 0);
  int32_t extra = rounds;
  for (const size_t j : largest_first(jobs)) {
    if (jobs[j].bytes > capacity) {
      out[j] = extra++;
      continue;
    }
    const std::optional<size_t> best = loads.best_round(jobs[j]);
    if (!best) return std::nullopt;
    loads.add(jobs[j], *best);
    out[j] = static_cast<int32_t>(*best);
  }
  return out;
}

}  // namespace

std::vector<int32_t> deal_team_rounds(std::span<const RoundJob> jobs,
                                      int32_t num_ranks, int32_t rounds,
                                      int64_t capacity) {
  std::optional<std::vector<int32_t>> dealt;
  while (!(dealt = deal_in(jobs, num_ranks, rounds, capacity))) ++rounds;
  std::map<int32_t, int32_t> number;
  for (const int32_t round : *dealt) number[round] = 0;
  int32_t next = 0;
  for (auto& [round, n] : number) n = next++;
  for (int32_t& round : *dealt) round = number[round];
  return *std::move(dealt);
}

}  // namespace canzona::plan

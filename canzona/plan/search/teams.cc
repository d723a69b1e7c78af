#include "canzona/plan/search/teams.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/step_times.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {
namespace {

// One choice of a home: the owners of its matrices, as the plan lists them, and
// the rounds they lie in.
struct HomeOption {
  std::vector<std::vector<int32_t>> owners;
  std::vector<int32_t> rounds;
  int32_t num_teams = 0;
  int32_t team_ranks = 0;
  int64_t makespan = 0;
  double seconds = 0;  // predicted

  // Fewer teams are better, then smaller ones.
  auto modesty() const { return std::tuple(num_teams, team_ranks, seconds); }
};

// Homes with the same kinds of matrices and the same nodes are alike: the
// numbers of the kinds, then those of the nodes.
using HomeKind = std::pair<std::vector<int32_t>, std::vector<int32_t>>;

class TeamSearch {
 public:
  TeamSearch(const PlanPart& part, const Problem& p, Assignment& a)
      : part_(part),
        p_(p),
        a_(a),
        costs_(p.rule, part.cost_basis, p.options.links),
        nodes_(nodes_for_teams(part)),
        most_(largest_team(p.options, p.grid.tp)) {}

  void run() {
    sort_homes();
    for (size_t h = 0; h < homes_.size(); ++h)
      slowest_whole_ = std::max(slowest_whole_, whole_of(h).makespan);
    if (!has_options()) return;
    double before = 0, after = 0;
    for (size_t h = 0; h < homes_.size(); ++h) {
      const double whole = whole_[h].seconds = predicted(h, whole_[h]);
      before = std::max(before, whole);
      double best = whole;
      for (const HomeOption& option : options_of(h))
        best = std::min(best, option.seconds);
      after = std::max(after, best);
    }
    if (after > kWorthTeams * before) return;
    for (size_t h = 0; h < homes_.size(); ++h)
      if (whole_[h].seconds > after) take(h, after);
  }

 private:
  bool has_options() {
    bool any = false;
    for (size_t h = 0; h < homes_.size(); ++h) any |= !options_of(h).empty();
    return any;
  }

  // Matrices of each home, alike ones together, and what kind of home it is.
  void sort_homes() {
    homes_ = matrices_by_home(p_, a_);
    for (size_t m = 0; m < p_.matrices.size(); ++m) kind_of(m);
    for (size_t h = 0; h < homes_.size(); ++h) {
      std::vector<int32_t>& matrices = homes_[h];
      std::stable_sort(matrices.begin(), matrices.end(),
                       [&](int32_t x, int32_t y) {
                         return kinds_[index(x)] < kinds_[index(y)];
                       });
      HomeKind kind;
      for (const int32_t m : matrices) kind.first.push_back(kinds_[index(m)]);
      const size_t first = h * index(p_.grid.tp);
      for (int32_t t = 0; t < p_.grid.tp; ++t)
        kind.second.push_back(nodes_[first + index(t)] - nodes_[first]);
      home_kinds_.push_back(std::move(kind));
    }
  }

  void kind_of(size_t m) {
    const Matrix& matrix = p_.matrices[m];
    const bool cut = p_.model.tensors[index(matrix.tensor)].cut != Cut::kNone;
    const auto [at, fresh] =
        known_kinds_.try_emplace(std::pair(shape_of(matrix), cut),
                                 static_cast<int32_t>(known_kinds_.size()));
    kinds_.push_back(at->second);
  }

  const TeamSizes& sizes_of(int32_t m, int32_t most) {
    TeamSizes& sizes = known_sizes_[{kinds_[index(m)], most}];
    const Matrix& matrix = p_.matrices[index(m)];
    if (sizes.empty())
      sizes = costs_.sizes(shape_of(matrix), p_.costs[index(m)], most);
    return sizes;
  }
  TeamSize team_of(int32_t m, size_t size) {
    const Matrix& matrix = p_.matrices[index(m)];
    return costs_.team(shape_of(matrix), p_.costs[index(m)],
                       static_cast<int32_t>(size));
  }

  // The home as it was dealt; its step is not yet predicted.
  const HomeOption& whole_of(size_t h) {
    HomeOption whole;
    std::vector<int64_t> loads(index(p_.grid.tp), 0);
    for (const int32_t m : homes_[h]) {
      const int32_t owner = a_.owner[index(m)];
      whole.owners.push_back({owner});
      whole.rounds.push_back(a_.micro_group[index(m)]);
      loads[index(owner)] +=
          costs_.over_period({}, p_.costs[index(m)], 1).member;
    }
    whole.makespan = *std::max_element(loads.begin(), loads.end());
    whole_.push_back(std::move(whole));
    return whole_.back();
  }

  // The one place that predicts a home's step: the mean over a period.
  double predicted(size_t h, const HomeOption& option) {
    std::vector<HomeMatrix> matrices;
    for (size_t i = 0; i < homes_[h].size(); ++i)
      matrices.push_back({homes_[h][i], option.rounds[i], option.owners[i]});
    std::ranges::sort(matrices, {}, [](const HomeMatrix& of) {
      return std::pair(of.round, of.matrix);
    });
    const HomeStep home(part_, p_.rule, costs_, matrices,
                        home_kinds_[h].second);
    const auto slowest = [&](int32_t phase) {
      return std::ranges::max(home.times(phase).rank_seconds);
    };
    const int32_t period = part_.period, phases = part_.phases;
    if (period == 1) return slowest(0);
    double sum = period > phases ? slowest(-1) * (period - phases) : 0;
    for (int32_t phase = 0; phase < phases; ++phase) sum += slowest(phase);
    return sum / period;
  }

  const std::vector<HomeOption>& options_of(size_t h) {
    const auto [at, fresh] = solved_.try_emplace(home_kinds_[h]);
    if (fresh) at->second = solve(h);
    return at->second;
  }

  std::vector<HomeOption> solve(size_t h) {
    TeamHome home;
    home.nodes = home_kinds_[h].second;
    const int32_t most = std::min(most_, ranks_of_largest_node(home.nodes));
    bool any = false;
    for (const int32_t m : homes_[h]) {
      home.matrices.push_back(sizes_of(m, most));
      any |= home.matrices.back().size() > 1;
    }
    const auto bound = static_cast<double>(any ? team_bound(home) : 0);
    if (!any || kWorthTeams * static_cast<double>(whole_[h].makespan) <= bound)
      return {};
    // A line of many ranks takes long to predict: only the best are.
    std::vector<TeamDeal> deals = deal_teams(home);
    constexpr size_t kMostPredicted = 3;
    if (part_.given && deals.size() > kMostPredicted) {
      std::ranges::stable_sort(deals, {}, &TeamDeal::makespan);
      deals.resize(kMostPredicted);
    }
    std::vector<HomeOption> options;
    for (const TeamDeal& deal : deals)
      if (deal.num_teams > 0 && deal.makespan <= slowest_whole_)
        options.push_back(with_best_rounds(h, deal));
    return options;
  }

  static int32_t ranks_of_largest_node(const std::vector<int32_t>& nodes) {
    std::map<int32_t, int32_t> counts;
    int32_t most = 1;
    for (const int32_t node : nodes) most = std::max(most, ++counts[node]);
    return most;
  }

  // As many rounds as make the predicted step shortest, the fewest of these.
  // Given storage has its own way of dealing rounds, with as many as that aims
  // at.
  HomeOption with_best_rounds(size_t h, const TeamDeal& deal) {
    HomeOption option;
    option.owners = deal.owners;
    option.num_teams = deal.num_teams;
    option.team_ranks = deal.team_ranks;
    option.makespan = deal.makespan;
    const std::vector<RoundJob> jobs = jobs_of(h, deal);
    HomeOption best;
    const int32_t fewest = part_.given ? kPipelineRounds : 1;
    for (int32_t rounds = fewest; rounds <= kPipelineRounds; ++rounds) {
      option.rounds =
          deal_team_rounds(jobs, p_.grid.tp, rounds, p_.options.capacity_bytes);
      option.seconds = predicted(h, option);
      if (rounds == fewest || option.seconds < best.seconds) best = option;
    }
    return best;
  }

  std::vector<RoundJob> jobs_of(size_t h, const TeamDeal& deal) {
    std::vector<RoundJob> jobs;
    for (size_t i = 0; i < deal.owners.size(); ++i) {
      const int32_t m = homes_[h][i];
      const auto members = std::ssize(deal.owners[i]);
      const TeamSize team = team_of(m, deal.owners[i].size());
      jobs.push_back({deal.owners[i], team.at_head(), team.member,
                      exchange_bytes(p_, m) / members});
    }
    return jobs;
  }

  // The most modest option of a home that is no slower than the slowest home.
  void take(size_t h, double seconds) {
    const HomeOption* best = nullptr;
    for (const HomeOption& option : options_of(h))
      if (option.seconds <= seconds &&
          (best == nullptr || option.modesty() < best->modesty()))
        best = &option;
    if (best == nullptr) return;
    for (size_t i = 0; i < homes_[h].size(); ++i) {
      const int32_t m = homes_[h][i];
      a_.owner[index(m)] = best->owners[i].front();
      a_.micro_group[index(m)] = best->rounds[i];
      if (best->owners[i].size() > 1) a_.teams[m] = best->owners[i];
    }
  }

  const PlanPart& part_;
  const Problem& p_;
  Assignment& a_;
  TeamCosts costs_;
  std::vector<int32_t> nodes_;  // of the grid's ranks
  int32_t most_;
  std::vector<std::vector<int32_t>> homes_;  // matrices, alike ones together
  std::vector<HomeKind> home_kinds_;
  std::map<std::pair<MatrixShape, bool>, int32_t> known_kinds_;
  std::vector<int32_t> kinds_;  // per matrix
  // By kind of matrix and largest team.
  std::map<std::pair<int32_t, int32_t>, TeamSizes> known_sizes_;
  std::vector<HomeOption> whole_;
  int64_t slowest_whole_ = 0;
  std::map<HomeKind, std::vector<HomeOption>> solved_;
};

int32_t ranks_of_largest_home(const Plan& request) {
  int32_t most = 1;
  for (const PlanPart& part : request.parts)
    most = std::max(most, part.grid.tp);
  return most;
}

}  // namespace

std::string why_no_teams(const Plan& request, const RuleFacts& rule) {
  const PlanOptions& options = request.options;
  if (options.micro_groups != "balanced")
    return cat("strategy ", options.strategy,
               options.micro_groups.empty()
                   ? " repeats updates on every tp rank"
                   : cat(" with micro-groups=", options.micro_groups,
                         " gives each matrix one owner; try micro-groups="
                         "balanced"));
  if (ranks_of_largest_home(request) == 1)
    return cat("homes on ", to_string(request.mesh),
               " have a single rank; teams need tp > 1, or ZeRO slices");
  if (has_blocks(request, rule)) return "";  // whose owners may be anywhere
  if (options.ranks_per_node == 1)
    return "no two ranks share a node (ranks-per-node=1)";
  if (!can_share_any(request, rule))
    return cat("rule ", rule.name(),
               " cannot share any matrix of this model with these "
               "options (canzona rules ",
               rule.name(), ")");
  return "";
}

void check_teams(const Plan& request, const RuleFacts& rule) {
  const int32_t teams = request.options.teams;
  if (teams == kTeamsAuto || teams == kTeamsOff) return;
  const std::string why = why_no_teams(request, rule);
  if (!why.empty())
    throw UsageError(
        cat("teams ", teams, ": ", why, "; teams=auto plans without teams"));
  int32_t ranks = ranks_of_largest_home(request);
  const bool in_blocks = has_blocks(request, rule);
  if (!in_blocks) ranks = std::min(ranks, request.options.ranks_per_node);
  if (teams > ranks)
    throw UsageError(cat("teams ", teams, ": a ",
                         in_blocks ? "matrix is shared by" : "team is made of",
                         " ranks of one home", in_blocks ? "" : " on one node",
                         ", and homes on ", to_string(request.mesh), " have ",
                         ranks, "; teams=auto uses the largest possible size"));
}

void share_matrices(const PlanPart& part, const Problem& p, Assignment& a) {
  if (largest_team(p.options, p.grid.tp) == 1 ||
      p.options.micro_groups != "balanced" || p.matrices.empty() ||
      !can_share_any(part, p.rule) || has_blocks(part, p.rule))
    return;
  TeamSearch(part, p, a).run();
}

}  // namespace canzona::plan

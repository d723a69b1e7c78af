#include <algorithm>
#include <map>
#include <utility>

#include "canzona/base/index.h"
#include "canzona/plan/predict/home_step.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {
namespace {

// Matrices of homes, by round: those of home `first / tp` are sorted so.
std::vector<std::vector<HomeMatrix>> matrices_by_home(const PlanPart& part) {
  const Mesh& grid = part.grid;
  std::vector<std::vector<HomeMatrix>> homes(index(grid.pp * grid.homes()));
  for (size_t m = 0; m < part.matrices.size(); ++m)
    each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
      homes[index(stage * grid.homes() + home)].push_back(
          {static_cast<int32_t>(m), part.micro_group[m], part.owners[m]});
    });
  for (std::vector<HomeMatrix>& some : homes)
    std::ranges::stable_sort(some, {}, &HomeMatrix::round);
  return homes;
}

// The nodes of the home that begins with a rank.
std::span<const int32_t> nodes_of_home(const PlanPart& part, const Nodes& nodes,
                                       int32_t first) {
  return std::span(nodes).subspan(index(first), index(part.grid.tp));
}

// Of a rank: an ordinary step, the sum over a period, the worst step.
struct PeriodSeconds {
  double ordinary = 0, sum = 0, worst = 0;
};

std::vector<PeriodSeconds> period_seconds(const PlanPart& part,
                                          const HomeStep& home) {
  std::vector<PeriodSeconds> out;
  for (const double seconds : home.times(part.period > 1 ? -1 : 0).rank_seconds)
    out.push_back({seconds, seconds * (part.period - part.phases), seconds});
  if (part.period == 1) {  // every step is the same
    for (PeriodSeconds& rank : out) rank.sum = rank.ordinary;
    return out;
  }
  for (int32_t phase = 0; phase < part.phases; ++phase) {
    const HomeStepTimes times = home.times(phase);
    for (size_t r = 0; r < out.size(); ++r) {
      out[r].sum += times.rank_seconds[r];
      out[r].worst = std::max(out[r].worst, times.rank_seconds[r]);
    }
  }
  return out;
}

void add_own_work(const PlanPart& part, RankCost& rank) {
  int64_t refresh = 0, worst = 0;
  for (const Ticks& r : rank.refresh) {
    refresh += r.value();
    worst = std::max(worst, r.value());
  }
  const double tick = part.cost_basis.seconds_per_tick;
  const auto every = static_cast<double>(rank.every_step.value());
  rank.transform_seconds_mean =
      tick * (every + static_cast<double>(refresh) / part.period);
  rank.transform_seconds_worst = tick * (every + static_cast<double>(worst));
}

// Broadcasts of weights happen inside the step and are not hidden.
double broadcast_seconds(const PlanPart& part, const RankCost& rank) {
  const WireBytes& w = rank.wire[static_cast<size_t>(Collective::kBroadcast)];
  return static_cast<double>(std::max(w.sent_intra, w.received_intra)) /
             part.options.links.intra_bytes_per_second +
         static_cast<double>(std::max(w.sent_inter, w.received_inter)) /
             part.options.links.inter_bytes_per_second;
}

}  // namespace

void add_step_times(const PlanPart& part, const RuleFacts& rule,
                    const Nodes& nodes, std::vector<RankCost>& ranks) {
  const std::vector<std::vector<HomeMatrix>> members = matrices_by_home(part);
  const int32_t tp = part.grid.tp;
  TeamCosts costs(rule, part.cost_basis, part.options.links);
  // Homes that repeat the updates of another, on nodes like its own.
  std::map<std::pair<int32_t, Nodes>, std::vector<PeriodSeconds>> known;
  for (int32_t first = 0; first < part.grid.world(); first += tp) {
    const bool repeats = part.traffic == Traffic::kAllReduce;
    const int32_t counted = repeats ? counted_rank(part.grid, first) : first;
    std::vector<PeriodSeconds> seconds;
    const auto compute = [&] {
      return period_seconds(
          part, HomeStep(part, rule, costs, members[index(counted / tp)],
                         nodes_of_home(part, nodes, first)));
    };
    if (repeats) {
      Nodes own(nodes.begin() + first, nodes.begin() + first + tp);
      for (size_t t = own.size(); t-- > 0;) own[t] -= own[0];
      const auto [found, is_new] = known.try_emplace({counted, std::move(own)});
      if (is_new) found->second = compute();
      seconds = found->second;
    } else {
      seconds = compute();
    }
    for (int32_t t = 0; t < tp; ++t) {
      RankCost& rank = ranks[index(first + t)];
      add_own_work(part, rank);
      rank.step_seconds = seconds[index(t)].ordinary;
      rank.step_seconds_mean = seconds[index(t)].sum / part.period;
      rank.step_seconds_worst = seconds[index(t)].worst;
    }
  }
}

namespace {

// Seconds of one part's step, ordinary, on nodes like those of its first
// replica: by module until it is applied, and until all is.
struct AppliedTimes {
  std::vector<double> modules;
  double all = 0;
};

AppliedTimes applied_times(const PlanPart& part) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  AppliedTimes out;
  out.modules.assign(index(num_modules(part.model)), 0);
  Nodes nodes;
  for (int32_t r = 0; r < part.grid.world(); ++r)
    nodes.push_back(part.node_of(rank_in_part(part, r, 0)));
  const std::vector<std::vector<HomeMatrix>> members = matrices_by_home(part);
  for (size_t home = 0; home < members.size(); ++home) {
    if (members[home].empty()) continue;
    const auto first = static_cast<int32_t>(home) * part.grid.tp;
    const HomeStepTimes times = HomeStep(part, *rule, costs, members[home],
                                         nodes_of_home(part, nodes, first))
                                    .times(part.period > 1 ? -1 : 0);
    out.all = std::max(out.all, std::ranges::max(times.rank_seconds));
    for (const HomeMatrix& of : members[home]) {
      const Tensor& tensor =
          part.model.tensors[index(part.matrices[index(of.matrix)].tensor)];
      double& applied = out.modules[index(module_of(part.model, tensor))];
      applied =
          std::max(applied, std::ranges::max(times.applied[index(of.round)]));
    }
  }
  return out;
}

}  // namespace

// Parts are updated one after the other, those of experts beside each other.
std::vector<double> applied_shares(const Plan& plan) {
  std::vector<double> modules(index(num_modules(plan.model)), 0);
  double before = 0, all = 0;
  for (size_t p = 0; p < plan.parts.size(); ++p) {
    const AppliedTimes times = applied_times(plan.parts[p]);
    for (size_t m = 0; m < modules.size(); ++m)
      if (times.modules[m] > 0)
        modules[m] = std::max(modules[m], before + times.modules[m]);
    all = std::max(all, before + times.all);
    if (p == 0) before = times.all;
  }
  for (double& share : modules) share = all > 0 ? share / all : 1;
  return modules;
}

void add_unhidden_times(const PlanPart& part, std::vector<RankCost>& world) {
  const double rate = part.cost_basis.element_wise_bytes_per_second;
  for (RankCost& rank : world) {
    const double broadcasts = broadcast_seconds(part, rank);
    if (rate > 0) rank.element_wise_seconds = rank.element_wise_bytes / rate;
    for (double* seconds : {&rank.step_seconds, &rank.step_seconds_mean,
                            &rank.step_seconds_worst}) {
      *seconds += broadcasts;
      *seconds += rank.element_wise_seconds;
    }
  }
}

}  // namespace canzona

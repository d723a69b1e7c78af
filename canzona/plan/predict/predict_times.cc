#include <algorithm>

#include "canzona/plan/predict/home_step.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {
namespace {

// Rounds of every home of the grid.
std::vector<HomeRounds> collect_rounds(const PlanPart& part) {
  const auto homes = static_cast<size_t>(part.grid.world() / part.grid.tp);
  std::vector<HomeRounds> rounds(homes, HomeRounds(part.grid.tp, part.phases));
  TeamTable teams(part);
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const HomeMatrix matrix =
        home_matrix(part, part.grid, m, part.micro_group[m]);
    const TeamSize team = teams.of(m);
    each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
      const int32_t in_all = stage * part.grid.homes() + home;
      rounds[static_cast<size_t>(in_all)].add(matrix, part.owners[m], team);
    });
  }
  return rounds;
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

void add_step_times(const PlanPart& part, const Nodes& nodes,
                    std::vector<RankCost>& ranks) {
  const std::vector<HomeRounds> rounds = collect_rounds(part);
  for (int32_t first = 0; first < part.grid.world(); first += part.grid.tp) {
    const bool near = nodes[static_cast<size_t>(first)] ==
                      nodes[static_cast<size_t>(first + part.grid.tp - 1)];
    const int32_t counted = part.traffic == Traffic::kAllReduce
                                ? counted_rank(part.grid, first)
                                : first;
    const HomeRounds& home =
        rounds[static_cast<size_t>(counted / part.grid.tp)];
    const HomeTerms terms =
        home_terms(part.cost_basis, part.options.links, near);
    const double ordinary = home.seconds(terms, part.period > 1 ? -1 : 0);
    double sum = ordinary * (part.period - part.phases), worst = ordinary;
    for (int32_t phase = 0; phase < part.phases; ++phase) {
      const double seconds = home.seconds(terms, phase);
      sum += seconds;
      worst = std::max(worst, seconds);
    }
    for (int32_t t = 0; t < part.grid.tp; ++t) {
      RankCost& rank = ranks[static_cast<size_t>(first + t)];
      add_own_work(part, rank);
      rank.step_seconds = ordinary;
      rank.step_seconds_mean = sum / part.period;
      rank.step_seconds_worst = worst;
    }
  }
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

#include "canzona/measure/planned_exchange.h"

#include <algorithm>

#include "canzona/plan/schedule/rank_entries.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {
namespace {

// One rank's rounds.
class RankExchange {
 public:
  RankExchange(const PlanPart& part, int32_t grid_rank)
      : part_(part),
        rank_(grid_rank),
        at_(coordinates_of(part.grid, grid_rank)),
        kept_(kept_by(part, at_, lay_out_rank(part, at_))) {}

  std::vector<PlannedRound> rounds(int fields) const {
    std::vector<PlannedRound> out;
    for (const Round& round : make_rounds(part_, at_, kept_, fields))
      out.push_back({seconds(round.gather[0]) + seconds(round.gather[1]),
                     transform_seconds(round),
                     seconds(round.scatter[0]) + seconds(round.scatter[1])});
    return out;
  }

 private:
  double transform_seconds(const Round& round) const {
    double ticks = 0;
    for (const SlotMatrix& matrix : round.computed) {
      const auto m = static_cast<size_t>(
          kept_.matrices[static_cast<size_t>(matrix.kept)].matrix);
      ticks += static_cast<double>(part_.costs[m].every_step.value()) +
               static_cast<double>(part_.costs[m].refresh.value()) /
                   static_cast<double>(part_.period);
    }
    TeamTable teams(part_);
    for (const SharedMatrix& shared : round.shared)
      if (shared.is_member())
        ticks += static_cast<double>(
            team_ticks(teams.of(static_cast<size_t>(shared.matrix)),
                       shared.place));
    return ticks * part_.cost_basis.seconds_per_tick;
  }

  double seconds(const ExchangeTable& table) const {
    if (table.empty) return 0;
    return std::max(port_seconds(table.send_bytes),
                    port_seconds(table.receive_bytes));
  }

  // Replicas are alike: the first stands for all.
  int32_t node_of(int32_t grid_rank) const {
    return part_.node_of(rank_in_part(part_, grid_rank, 0));
  }

  double port_seconds(const std::vector<int64_t>& bytes) const {
    const Links& links = part_.options.links;
    const int32_t tp = part_.grid.tp, first = first_of_home(part_.grid, rank_);
    double inside = 0, outside = 0;
    for (int32_t t = 0; t < tp; ++t) {
      const auto count = bytes[static_cast<size_t>(t)];
      if (first + t == rank_ || count == 0) continue;
      const bool near = node_of(first + t) == node_of(rank_);
      (near ? inside : outside) +=
          links.latency_seconds +
          static_cast<double>(count) / (near ? links.intra_bytes_per_second
                                             : links.inter_bytes_per_second);
    }
    return std::max(inside, outside);
  }

  const PlanPart& part_;
  int32_t rank_;
  Coordinates at_;
  Kept kept_;
};

void take_slower(std::vector<PlannedRound>& home,
                 const std::vector<PlannedRound>& rank) {
  if (home.size() < rank.size()) home.resize(rank.size());
  for (size_t r = 0; r < rank.size(); ++r) {
    home[r].gather = std::max(home[r].gather, rank[r].gather);
    home[r].transform = std::max(home[r].transform, rank[r].transform);
    home[r].scatter = std::max(home[r].scatter, rank[r].scatter);
  }
}

// In the schedule's order: times at which compute and links are free.
class Pipeline {
 public:
  Pipeline(const std::vector<PlannedRound>& rounds,
           const PlannedExchange::StepRates& rates)
      : rounds_(rounds), rates_(rates), arrived_(rounds.size(), 0) {}

  double seconds() {
    for (const ExchangeStage& stage :
         exchange_order(static_cast<int32_t>(rounds_.size())))
      follow(stage);
    return compute_;
  }

 private:
  // Passes over elements come with the rounds.
  void follow(const ExchangeStage& stage) {
    const auto k = static_cast<size_t>(stage.round);
    if (stage.kind == EntryKind::kAllToAll) {
      const bool gathers = stage.purpose == Purpose::kGatherMatrices;
      arrived_[k] = pass(gathers ? rounds_[k].gather : rounds_[k].scatter);
      return;
    }
    if (stage.kind == EntryKind::kPrepare) {
      compute_ += rates_.elements / static_cast<double>(rounds_.size());
      return;
    }
    compute_ = std::max(compute_, arrived_[k]);
    if (stage.kind == EntryKind::kTransform)
      compute_ += rates_.per_transform * rounds_[k].transform;
  }

  double pass(double seconds) {
    links_ = std::max(links_, compute_) + seconds;
    const double end = links_ + (seconds > 0 ? rates_.per_operation : 0);
    if (!rates_.pipelined) compute_ = end;
    return end;
  }

  const std::vector<PlannedRound>& rounds_;
  const PlannedExchange::StepRates& rates_;
  std::vector<double> arrived_;  // a round's gather, then its scatter
  double compute_ = 0, links_ = 0;
};

}  // namespace

// Parts exchange one after the other, those of experts side by side.
double PlannedExchange::step_seconds(const StepRates& rates) const {
  const auto slowest_of = [](const Homes& homes, const StepRates& with) {
    double slowest = 0;
    for (const std::vector<PlannedRound>& rounds : homes)
      if (!rounds.empty())
        slowest = std::max(slowest, Pipeline(rounds, with).seconds());
    return slowest;
  };
  StepRates no_elements = rates;
  no_elements.elements = 0;
  double experts = 0;
  for (size_t i = 1; i < parts.size(); ++i)
    experts = std::max(experts, slowest_of(parts[i], no_elements));
  return slowest_of(parts.front(), rates) + experts;
}

PlannedExchange planned_exchange(const Plan& plan) {
  PlannedExchange out;
  const int fields =
      make_rule_facts(plan.rule, plan.rule_options)->gather_fields();
  for (const PlanPart& part : plan.parts) {
    PlannedExchange::Homes& homes = out.parts.emplace_back();
    if (part.grid.tp == 1) continue;
    for (int32_t rank = 0; rank < part.grid.world(); ++rank) {
      const std::vector<PlannedRound> rounds =
          RankExchange(part, rank).rounds(fields);
      if (first_of_home(part.grid, rank) == rank) homes.emplace_back();
      take_slower(homes.back(), rounds);
      for (const PlannedRound& round : rounds)
        out.all += round.gather + round.scatter;
      if (!rounds.empty())
        out.ends += rounds.front().gather + rounds.back().scatter;
    }
  }
  return out;
}

}  // namespace canzona

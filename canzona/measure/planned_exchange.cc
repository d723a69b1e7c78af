#include "canzona/measure/planned_exchange.h"

#include <algorithm>

#include "canzona/plan/schedule/rank_entries.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {
namespace {

// Seconds of a rank's operations, on its busiest port.
struct RankRound {
  double gather = 0, scatter = 0;
};

// One rank's share of the rounds of its home.
class RankExchange {
 public:
  RankExchange(const PlanPart& part, int32_t grid_rank)
      : part_(part),
        rank_(grid_rank),
        at_(coordinates_of(part.grid, grid_rank)),
        kept_(kept_by(part, at_, lay_out_rank(part, at_))) {}

  // Adds what the rank computes and sends.
  std::vector<RankRound> add_to(std::vector<StepRound>& home,
                                int fields) const {
    std::vector<RankRound> out;
    const std::vector<Round> rounds = make_rounds(part_, at_, kept_, fields);
    if (home.size() < rounds.size()) home.resize(rounds.size());
    for (size_t r = 0; r < rounds.size(); ++r) {
      const Round& round = rounds[r];
      home[r].transform.resize(static_cast<size_t>(part_.grid.tp), 0);
      home[r].transform[static_cast<size_t>(at_.t)] = transform_seconds(round);
      for (size_t table = 0; table < 2; ++table) {
        add_sent(round.gather[table], home[r].gather);
        add_sent(round.scatter[table], home[r].scatter);
      }
      add_strips(round, home[r]);
      RankRound& sums = out.emplace_back();
      for (const ExchangeTable& table : round.gather)
        sums.gather += seconds(table);
      for (const ExchangeTable& table : round.scatter)
        sums.scatter += seconds(table);
    }
    return out;
  }

 private:
  // Adds strips that go one by one.
  void add_strips(const Round& round, StepRound& home) const {
    const auto num_ranks = static_cast<size_t>(part_.grid.tp);
    const auto rank = static_cast<size_t>(at_.t);
    home.strips.resize(
        static_cast<size_t>(round.num_tables() - Round::kFirstStripTable));
    if (home.strips.empty()) return;
    home.iterate.resize(num_ranks, 0);
    for (size_t i = 0; i < home.strips.size(); ++i) {
      StepStrips& strips = home.strips[i];
      strips.sum.resize(num_ranks, 0);
      strips.multiply.resize(num_ranks, 0);
      add_sent(round.gather[Round::kFirstStripTable + i], strips.gather);
      add_sent(round.scatter[Round::kFirstStripTable + i], strips.scatter);
    }
    if (!round.by_strips) return;
    TeamTable teams(part_);
    const double tick = part_.cost_basis.seconds_per_tick;
    const StripTicks ticks =
        teams.strip_ticks(static_cast<size_t>(round.by_strips->matrix));
    home.iterate[rank] = static_cast<double>(ticks.rest) * tick;
    for (const StripMatrix::Strip& strip : round.by_strips->strips) {
      StepStrips& of = home.strips[static_cast<size_t>(
          strip.table - Round::kFirstStripTable)];
      of.sum[rank] = static_cast<double>(ticks.sum) * tick;
      of.multiply[rank] = static_cast<double>(ticks.multiply) * tick;
    }
  }

  bool is_near(int32_t t) const {
    return node_of(first_of_home(part_.grid, rank_) + t) == node_of(rank_);
  }

  void add_sent(const ExchangeTable& table,
                std::vector<StepMessage>& messages) const {
    const Links& links = part_.options.links;
    for (int32_t t = 0; !table.empty && t < part_.grid.tp; ++t) {
      const int64_t bytes = table.send_bytes[static_cast<size_t>(t)];
      if (t == at_.t || bytes == 0) continue;
      messages.push_back({at_.t, t, is_near(t),
                          links.port_seconds(is_near(t), bytes),
                          links.latency(is_near(t))});
    }
  }

  double transform_seconds(const Round& round) const {
    double ticks = 0;
    TeamTable teams(part_);
    for (const SlotMatrix& matrix : round.computed) {
      const auto m = static_cast<size_t>(
          kept_.matrices[static_cast<size_t>(matrix.kept)].matrix);
      const MatrixCost cost = teams.cost(m, matrix.block);
      ticks += static_cast<double>(cost.every_step.value()) +
               static_cast<double>(cost.refresh.value()) /
                   static_cast<double>(part_.period);
    }
    for (const SharedMatrix& shared : round.shared)
      if (shared.is_member())
        ticks += static_cast<double>(team_ticks(
            teams.of(static_cast<size_t>(shared.matrix)), shared.place));
    return ticks * part_.cost_basis.seconds_per_tick;
  }

  double seconds(const ExchangeTable& table) const {
    if (table.empty) return 0;
    return std::max(port_seconds(table.send_bytes),
                    port_seconds(table.receive_bytes));
  }

  // Replicas are equal, so the first stands for all.
  int32_t node_of(int32_t grid_rank) const {
    return part_.node_of(rank_in_part(part_, grid_rank, 0));
  }

  double port_seconds(const std::vector<int64_t>& bytes) const {
    const Links& links = part_.options.links;
    double inside = 0, outside = 0;
    for (int32_t t = 0; t < part_.grid.tp; ++t) {
      const auto count = bytes[static_cast<size_t>(t)];
      if (t == at_.t || count == 0) continue;
      (is_near(t) ? inside : outside) += links.port_seconds(is_near(t), count);
    }
    return std::max(inside > 0 ? inside + links.latency(true) : 0,
                    outside > 0 ? outside + links.latency(false) : 0);
  }

  const PlanPart& part_;
  int32_t rank_;
  Coordinates at_;
  Kept kept_;
};

// Returns the stages of a home at these rates. Passes over elements are spread
// over the rounds.
std::vector<StepStage> stages_at(std::vector<StepRound> rounds,
                                 const PlannedExchange::StepRates& rates) {
  const double prepare = rates.elements / static_cast<double>(rounds.size());
  const size_t num_ranks = rounds.front().transform.size();
  const auto slow_down = [&](std::vector<double>& all) {
    for (double& seconds : all) seconds *= rates.per_transform;
  };
  const auto delay = [&](auto& exchange) {
    for (auto* messages : {&exchange.gather, &exchange.scatter})
      for (StepMessage& message : *messages)
        message.latency_seconds += rates.per_operation;
  };
  for (StepRound& round : rounds) {
    for (auto* seconds : {&round.transform, &round.iterate})
      slow_down(*seconds);
    delay(round);
    for (StepStrips& strips : round.strips) {
      for (auto* seconds : {&strips.sum, &strips.multiply}) slow_down(*seconds);
      delay(strips);
    }
  }
  std::vector<StepStage> stages = step_stages(std::move(rounds));
  int32_t exchange = -1;
  for (size_t s = 0; s < stages.size(); ++s) {
    StepStage& stage = stages[s];
    if (!rates.pipelined && exchange >= 0) stage.waits.push_back(exchange);
    if (stage.thread != StepThread::kCompute)
      exchange = static_cast<int32_t>(s);
    if (stage.kind == EntryKind::kPrepare)
      stage.seconds.assign(num_ranks, prepare);
  }
  return stages;
}

double home_seconds(const std::vector<StepRound>& rounds,
                    const PlannedExchange::StepRates& rates) {
  if (rounds.empty()) return 0;
  const auto num_ranks = static_cast<int32_t>(rounds.front().transform.size());
  return std::ranges::max(
      step_times(stages_at(rounds, rates), num_ranks).rank_seconds);
}

}  // namespace

// Parts exchange one after the other, except those of experts, which do so at
// the same time.
double PlannedExchange::step_seconds(const StepRates& rates) const {
  const auto slowest_of = [](const Homes& homes, const StepRates& with) {
    double slowest = 0;
    for (const std::vector<StepRound>& rounds : homes)
      slowest = std::max(slowest, home_seconds(rounds, with));
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
      if (first_of_home(part.grid, rank) == rank) homes.emplace_back();
      const std::vector<RankRound> rounds =
          RankExchange(part, rank).add_to(homes.back(), fields);
      for (const RankRound& round : rounds)
        out.all += round.gather + round.scatter;
      if (!rounds.empty())
        out.ends += rounds.front().gather + rounds.back().scatter;
    }
  }
  return out;
}

}  // namespace canzona

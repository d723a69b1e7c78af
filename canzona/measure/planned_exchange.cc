#include "canzona/measure/planned_exchange.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/train/stage.h"
#include "canzona/train/stage_links.h"

namespace canzona {
namespace {

double port_seconds(const WireBytes& bytes, const LinkModel& link) {
  const auto most = [](int64_t a, int64_t b) {
    return static_cast<double>(std::max(a, b));
  };
  return std::max(most(bytes.sent_intra, bytes.received_intra) /
                      link.intra_bytes_per_second,
                  most(bytes.sent_inter, bytes.received_inter) /
                      link.inter_bytes_per_second);
}

double slowest_port(const std::vector<WireBytes>& ranks,
                    const LinkModel& link) {
  double most = 0;
  for (const WireBytes& rank : ranks)
    most = std::max(most, port_seconds(rank, link));
  return most;
}

// Calls visit(entry, bytes) for every entry of a rank between these calls.
template <class Visit>
void visit_bytes(const Plan& plan, int32_t rank,
                 std::span<const TrainerCall> calls, GradientWire wire,
                 Visit visit) {
  std::map<int32_t, int32_t> rank_in;  // by part
  for (const RankInPart& at : parts_of_rank(plan, rank))
    rank_in[at.part] = at.rank;
  for (const ScheduleEntry& entry : iteration_of(plan, rank, calls))
    visit(entry, wire_bytes_of(plan.parts[static_cast<size_t>(entry.part)],
                               rank_in[entry.part], entry, bytes_of(wire)));
}

// The gathers and scatters of a stage's first modules, each counted once.
class EdgeBytes {
 public:
  explicit EdgeBytes(int32_t first) : last_(std::max(first, 1)) {}

  void add(const ScheduleEntry& entry, const WireBytes& bytes) {
    const bool moves = entry.purpose == Purpose::kGatherModule ||
                       entry.purpose == Purpose::kScatterModule;
    if (moves && entry.module <= last_ &&
        seen_.emplace(entry.part, entry.bucket, entry.purpose, entry.level)
            .second)
      sum_ += bytes;
  }
  const WireBytes& sum() const { return sum_; }

 private:
  int32_t last_;
  std::set<std::tuple<int32_t, int32_t, Purpose, BucketCollective::Level>>
      seen_;
  WireBytes sum_;
};

}  // namespace

std::vector<WireBytes> step_bytes(const Plan& plan, GradientWire wire) {
  const TrainerCall step{.kind = TrainerCall::Kind::kStep};
  std::vector<WireBytes> ranks(static_cast<size_t>(plan.mesh.world()));
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank)
    visit_bytes(plan, rank, {&step, 1}, wire,
                [&](const ScheduleEntry&, const WireBytes& bytes) {
                  ranks[static_cast<size_t>(rank)] += bytes;
                });
  return ranks;
}

int64_t PlannedBytes::most_sent() const {
  int64_t most = 0;
  for (const WireBytes& rank : ranks) most = std::max(most, rank.sent());
  return most;
}

int64_t PlannedBytes::most_slow() const {
  int64_t most = 0;
  for (const WireBytes& rank : ranks) most = std::max(most, rank.sent_inter);
  return most;
}

double PlannedBytes::seconds(const LinkModel& link) const {
  return slowest_port(ranks, link);
}
double PlannedBytes::edge_seconds(const LinkModel& link) const {
  return slowest_port(edges, link);
}

PlannedBytes planned_bytes(const TrainSettings& settings, const Plan& plan) {
  PlannedBytes out;
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    const int32_t stage = coordinates_of(plan.mesh, rank).stage;
    const std::vector<TrainerCall> calls = stage_calls(
        plan.model, plan.mesh, stage, tasks_of(settings, plan.mesh, stage));
    EdgeBytes edge(calls.front().module);
    WireBytes& sum = out.ranks.emplace_back();
    visit_bytes(plan, rank, calls, settings.runtime.wire,
                [&](const ScheduleEntry& entry, const WireBytes& bytes) {
                  sum += bytes;
                  edge.add(entry, bytes);
                });
    out.edges.push_back(edge.sum());
  }
  return out;
}

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
                     teams.over_period(static_cast<size_t>(shared.matrix)),
                     shared.member)) /
                 static_cast<double>(part_.period);
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

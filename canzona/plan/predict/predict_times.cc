#include <algorithm>

#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict_parts.h"

namespace canzona {
namespace {

// Work and bytes of one round on one rank.
struct RoundLoad {
  int64_t every_step = 0;
  int64_t gathered = 0;
  int64_t scattered = 0;
};

// Rounds of one rank; refresh work lies in [round · phases + phase].
struct RankRounds {
  std::vector<RoundLoad> loads;
  std::vector<int64_t> refresh;
};

RoundLoad& round_of(RankRounds& rounds, int32_t round, int32_t phases) {
  const size_t wanted = static_cast<size_t>(round) + 1;
  if (rounds.loads.size() < wanted) {
    rounds.loads.resize(wanted);
    rounds.refresh.resize(wanted * static_cast<size_t>(phases), 0);
  }
  return rounds.loads[wanted - 1];
}

std::vector<RankRounds> collect_rounds(const PlanPart& plan) {
  std::vector<RankRounds> ranks(static_cast<size_t>(plan.grid.world()));
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const Matrix& matrix = plan.matrices[m];
    const Tensor& tensor =
        plan.model.tensors[static_cast<size_t>(matrix.tensor)];
    const int64_t parts =
        tensor.cut == Cut::kNone ? plan.grid.places : plan.grid.tp;
    const int64_t bytes = matrix.rows * matrix.cols * kBytesPerFp32;
    each_computing_rank(plan, m, [&](int32_t r) {
      RankRounds& rank = ranks[static_cast<size_t>(r)];
      RoundLoad& load = round_of(rank, plan.micro_group[m], plan.phases);
      load.every_step += plan.costs[m].every_step.value();
      rank.refresh[static_cast<size_t>(plan.micro_group[m]) *
                       static_cast<size_t>(plan.phases) +
                   static_cast<size_t>(plan.phase[m])] +=
          plan.costs[m].refresh.value();
      // The owner's port is the narrow place: it takes all shards and sends all
      // updates but its own.
      const int64_t own = bytes / parts;
      load.gathered += bytes - own;
      if (!plan.owners[m].empty()) load.scattered += own * (plan.grid.tp - 1);
    });
  }
  return ranks;
}

// Seconds of one step of a home: gathers as far ahead as they get ‖
// transform(k) ‖ scatter(k−1), each stage as slow as its slowest rank. `phase`
// < 0: an ordinary step.
class HomeStep {
 public:
  HomeStep(const PlanPart& plan, const RankRounds* ranks, bool near)
      : plan_(plan), ranks_(ranks) {
    bandwidth_ = near ? plan.options.links.intra_bytes_per_second
                      : plan.options.links.inter_bytes_per_second;
    for (int32_t t = 0; t < plan.grid.tp; ++t) {
      num_rounds_ = std::max(num_rounds_, ranks[t].loads.size());
    }
  }

  double seconds(int32_t phase) const {
    double gathered = 0, transformed = 0, scattered = 0;
    for (size_t round = 0; round < num_rounds_; ++round) {
      int64_t in = 0, out = 0, ticks = 0;
      for (int32_t t = 0; t < plan_.grid.tp; ++t) {
        if (round >= ranks_[t].loads.size()) continue;
        const RoundLoad& load = ranks_[t].loads[round];
        in = std::max(in, load.gathered);
        out = std::max(out, load.scattered);
        ticks = std::max(ticks, load.every_step + refresh(t, round, phase));
      }
      gathered += wire_seconds(in);
      transformed =
          std::max(transformed, gathered) +
          static_cast<double>(ticks) * plan_.cost_basis.seconds_per_tick;
      scattered = std::max(scattered, transformed) + wire_seconds(out);
    }
    return scattered;
  }

 private:
  int64_t refresh(int32_t t, size_t round, int32_t phase) const {
    if (phase < 0) return 0;
    return ranks_[t].refresh[round * static_cast<size_t>(plan_.phases) +
                             static_cast<size_t>(phase)];
  }
  double wire_seconds(int64_t bytes) const {
    if (bytes == 0 || plan_.grid.tp == 1) return 0;
    return plan_.options.links.latency_seconds +
           static_cast<double>(bytes) / bandwidth_;
  }

  const PlanPart& plan_;
  const RankRounds* ranks_;  // the tp ranks of the home
  double bandwidth_ = 1;
  size_t num_rounds_ = 0;
};

void add_own_work(const PlanPart& plan, RankCost& rank) {
  int64_t refresh = 0, worst = 0;
  for (const Ticks& r : rank.refresh) {
    refresh += r.value();
    worst = std::max(worst, r.value());
  }
  const double tick = plan.cost_basis.seconds_per_tick;
  const auto every = static_cast<double>(rank.every_step.value());
  rank.transform_seconds_mean =
      tick * (every + static_cast<double>(refresh) / plan.period);
  rank.transform_seconds_worst = tick * (every + static_cast<double>(worst));
}

// Broadcasts of weights happen inside the step and are not hidden.
double broadcast_seconds(const PlanPart& plan, const RankCost& rank) {
  const WireBytes& w = rank.wire[static_cast<size_t>(Collective::kBroadcast)];
  return static_cast<double>(std::max(w.sent_intra, w.received_intra)) /
             plan.options.links.intra_bytes_per_second +
         static_cast<double>(std::max(w.sent_inter, w.received_inter)) /
             plan.options.links.inter_bytes_per_second;
}

}  // namespace

void add_step_times(const PlanPart& plan, const Nodes& nodes,
                    std::vector<RankCost>& ranks) {
  const std::vector<RankRounds> rounds = collect_rounds(plan);
  for (int32_t first = 0; first < plan.grid.world(); first += plan.grid.tp) {
    const bool near = nodes[static_cast<size_t>(first)] ==
                      nodes[static_cast<size_t>(first + plan.grid.tp - 1)];
    const int32_t counted = plan.traffic == Traffic::kAllReduce
                                ? counted_rank(plan.grid, first)
                                : first;
    const HomeStep home(plan, &rounds[static_cast<size_t>(counted)], near);
    const double ordinary = home.seconds(plan.period > 1 ? -1 : 0);
    double sum = ordinary * (plan.period - plan.phases), worst = ordinary;
    for (int32_t phase = 0; phase < plan.phases; ++phase) {
      const double seconds = home.seconds(phase);
      sum += seconds;
      worst = std::max(worst, seconds);
    }
    for (int32_t t = 0; t < plan.grid.tp; ++t) {
      RankCost& rank = ranks[static_cast<size_t>(first + t)];
      add_own_work(plan, rank);
      rank.step_seconds = ordinary;
      rank.step_seconds_mean = sum / plan.period;
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

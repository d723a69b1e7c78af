#include <algorithm>
#include <map>
#include <utility>

#include "canzona/base/index.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/predict/step_times.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/strip_exchange.h"
#include "canzona/plan/schedule/team_strips.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {
namespace {

// The rounds of one home: ticks by rank, and messages. Refresh work lies in
// [rank · phases + phase].
struct RoundWork {
  std::vector<int64_t> every_step, refresh;
  std::vector<int64_t> paths;  // by rank: the longest of its teams
  std::vector<StepMessage> gather, scatter;
  // Strips that go one by one: messages by exchange, ticks by rank.
  struct Strips {
    std::vector<StepMessage> gather, scatter;
    std::vector<int64_t> sum, multiply;
  };
  std::vector<Strips> strips;
  std::vector<int64_t> iterate;
};

// Matrices of homes, by round: those of home `first / tp` are sorted so.
std::vector<std::vector<int32_t>> matrices_by_home(const PlanPart& part) {
  const Mesh& grid = part.grid;
  std::vector<std::vector<int32_t>> homes(index(grid.pp * grid.homes()));
  for (size_t m = 0; m < part.matrices.size(); ++m)
    each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
      homes[index(stage * grid.homes() + home)].push_back(
          static_cast<int32_t>(m));
    });
  for (std::vector<int32_t>& some : homes)
    std::stable_sort(some.begin(), some.end(), [&](int32_t a, int32_t b) {
      return part.micro_group[index(a)] < part.micro_group[index(b)];
    });
  return homes;
}

// Bytes from each rank of a home to each other, in one round.
class PairBytes {
 public:
  explicit PairBytes(int32_t num_ranks)
      : num_ranks_(num_ranks), bytes_(index(num_ranks) * index(num_ranks), 0) {}

  void add(int32_t from, int32_t to, int64_t bytes) {
    if (from != to)
      bytes_[index(from) * index(num_ranks_) + index(to)] += bytes;
  }

  // What was added since the last time.
  template <class Near>
  std::vector<StepMessage> take(const Links& links, const Near& near) {
    std::vector<StepMessage> out;
    for (int32_t from = 0; from < num_ranks_; ++from)
      for (int32_t to = 0; to < num_ranks_; ++to) {
        const int64_t bytes = std::exchange(
            bytes_[index(from) * index(num_ranks_) + index(to)], 0);
        if (bytes == 0) continue;
        const bool inside = near(from, to);
        out.push_back({from, to, inside, links.port_seconds(inside, bytes),
                       links.latency(inside)});
      }
    return out;
  }

 private:
  int32_t num_ranks_;
  std::vector<int64_t> bytes_;
};

// The step of one home, rank by rank.
class HomeStep {
 public:
  // `members` are the home's matrices by round, `first` is its first rank.
  HomeStep(const PlanPart& part, const RuleFacts& rule, TeamTable& teams,
           const std::vector<int32_t>& members, const Nodes& nodes,
           int32_t first)
      : part_(part), rule_(rule), teams_(teams), num_ranks_(part.grid.tp) {
    PairBytes gather(num_ranks_), scatter(num_ranks_);
    const auto near = [&](int32_t a, int32_t b) {
      return nodes[index(first + a)] == nodes[index(first + b)];
    };
    const auto round_at = [&](size_t i) {
      return part.micro_group[index(members[i])];
    };
    for (size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      const int32_t round = round_at(begin);
      while (end < members.size() && round_at(end) == round) ++end;
      const auto some = std::span(members).subspan(begin, end - begin);
      StripExchange strips;
      if (goes_by_strips(part, round, round_at(members.size() - 1) + 1))
        strips = StripExchange(part, teams, some);
      for (const int32_t m : some)
        if (strips.strips(m) == 0) add(m, gather, scatter);
      RoundWork& work = round_of(round);
      work.gather = gather.take(part.options.links, near);
      work.scatter = scatter.take(part.options.links, near);
      work.strips.resize(index(strips.size()));
      for (int32_t i = 0; i < strips.size(); ++i) {
        add_strips(some, strips, i, work, gather, scatter);
        work.strips[index(i)].gather = gather.take(part.options.links, near);
        work.strips[index(i)].scatter = scatter.take(part.options.links, near);
      }
    }
  }

  // `phase` < 0: an ordinary step.
  HomeStepTimes times(int32_t phase) const {
    std::vector<StepRound> rounds;
    for (const RoundWork& work : rounds_) {
      StepRound& round = rounds.emplace_back();
      round.gather = work.gather;
      round.scatter = work.scatter;
      for (int32_t r = 0; r < num_ranks_; ++r)
        round.transform.push_back(seconds_of(work, r, phase));
      for (const RoundWork::Strips& strips : work.strips)
        round.strips.push_back({seconds_of(strips.sum),
                                seconds_of(strips.multiply), strips.gather,
                                strips.scatter});
      if (!work.strips.empty()) round.iterate = seconds_of(work.iterate);
    }
    return step_times(step_stages(std::move(rounds)), num_ranks_);
  }

 private:
  void add(int32_t m, PairBytes& gather, PairBytes& scatter) {
    const Tensor& tensor =
        part_.model.tensors[index(part_.matrices[index(m)].tensor)];
    RoundWork& work = round_of(part_.micro_group[index(m)]);
    if (part_.owners[index(m)].size() > 1)
      return add_team(m, work, gather, scatter);
    const std::vector<int64_t> elements =
        num_ranks_ > 1 ? elements_by_rank(part_, m) : std::vector<int64_t>();
    const std::span<const int32_t> owners = part_.owners[index(m)];
    const auto add_owner = [&](int32_t owner) {
      const size_t phases = index(part_.phases);
      work.every_step[index(owner)] += part_.costs[index(m)].every_step.value();
      work.refresh[index(owner) * phases + index(part_.phase[index(m)])] +=
          part_.costs[index(m)].refresh.value();
      for (int32_t t = 0; t < std::ssize(elements); ++t) {
        const int64_t count = elements[index(t)];
        if (sends_to(part_.grid, tensor, t, owner))
          gather.add(t, owner, count * rule_.gather_bytes_per_element());
        if (!owners.empty())
          scatter.add(owner, t, count * rule_.scatter_bytes_per_element());
      }
    };
    for (int32_t t = 0; owners.empty() && t < num_ranks_; ++t) add_owner(t);
    for (int32_t t : owners) add_owner(t);
  }

  // Adds the strips that go with exchange number `exchange` of a round, and the
  // rest of their matrices with the first.
  void add_strips(std::span<const int32_t> matrices,
                  const StripExchange& strips, int32_t exchange,
                  RoundWork& work, PairBytes& gather, PairBytes& scatter) {
    RoundWork::Strips& of = work.strips[index(exchange)];
    for (auto* ticks : {&of.sum, &of.multiply, &work.iterate})
      ticks->resize(index(num_ranks_), 0);
    for (const int32_t m : matrices) {
      const int32_t count = strips.strips(m);
      for (int32_t s = 0; s < count; ++s) {
        if (strips.exchange_of(m, s) != exchange) continue;
        const int32_t owner = part_.owners[index(m)][0];
        const StripTicks ticks = teams_.strip_ticks(index(m));
        of.sum[index(owner)] += ticks.sum;
        of.multiply[index(owner)] += ticks.multiply;
        if (s == 0) work.iterate[index(owner)] += ticks.rest;
        add_rectangle(m, strip_rectangle(part_, m, count, s), owner, gather,
                      scatter);
      }
    }
  }

  // The elements of a rectangle go to a rank and come back.
  void add_rectangle(int32_t m, const Rectangle& rectangle, int32_t member,
                     PairBytes& gather, PairBytes& scatter) const {
    const Tensor& tensor =
        part_.model.tensors[index(part_.matrices[index(m)].tensor)];
    const std::vector<int64_t> elements = elements_within(part_, m, rectangle);
    for (int32_t t = 0; t < std::ssize(elements); ++t) {
      const int64_t count = elements[index(t)];
      if (sends_to(part_.grid, tensor, t, member))
        gather.add(t, member, count * rule_.gather_bytes_per_element());
      scatter.add(member, t, count * rule_.scatter_bytes_per_element());
    }
  }

  // Members have their strips, and wait for the head's factors at the least.
  void add_team(int32_t m, RoundWork& work, PairBytes& gather,
                PairBytes& scatter) {
    const std::span<const int32_t> owners = part_.owners[index(m)];
    const TeamSize team = teams_.of(index(m));
    for (int32_t i = 0; i < std::ssize(owners); ++i) {
      const int32_t member = owners[index(i)];
      work.every_step[index(member)] += team_ticks(team, i);
      int64_t& path = work.paths[index(member)];
      path = std::max(path, team.path);
      add_rectangle(m, teams_.rectangle(index(m), i), member, gather, scatter);
    }
  }

  RoundWork& round_of(int32_t round) {
    while (rounds_.size() <= index(round)) {
      RoundWork& work = rounds_.emplace_back();
      work.every_step.assign(index(num_ranks_), 0);
      work.refresh.assign(index(num_ranks_) * index(part_.phases), 0);
      work.paths.assign(index(num_ranks_), 0);
    }
    return rounds_[index(round)];
  }

  std::vector<double> seconds_of(const std::vector<int64_t>& ticks) const {
    std::vector<double> out;
    for (const int64_t some : ticks)
      out.push_back(static_cast<double>(some) *
                    part_.cost_basis.seconds_per_tick);
    return out;
  }

  double seconds_of(const RoundWork& work, int32_t rank, int32_t phase) const {
    int64_t ticks = work.every_step[index(rank)];
    if (phase >= 0)
      ticks += work.refresh[index(rank) * index(part_.phases) + index(phase)];
    ticks = std::max(ticks, work.paths[index(rank)]);
    return static_cast<double>(ticks) * part_.cost_basis.seconds_per_tick;
  }

  const PlanPart& part_;
  const RuleFacts& rule_;
  TeamTable& teams_;
  int32_t num_ranks_;
  std::vector<RoundWork> rounds_;
};

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
  const std::vector<std::vector<int32_t>> members = matrices_by_home(part);
  const int32_t tp = part.grid.tp;
  TeamTable teams(part);
  // Homes that repeat the updates of another, on nodes like its own.
  std::map<std::pair<int32_t, Nodes>, std::vector<PeriodSeconds>> known;
  for (int32_t first = 0; first < part.grid.world(); first += tp) {
    const bool repeats = part.traffic == Traffic::kAllReduce;
    const int32_t counted = repeats ? counted_rank(part.grid, first) : first;
    std::vector<PeriodSeconds> seconds;
    const auto compute = [&] {
      return period_seconds(
          part, HomeStep(part, rule, teams, members[index(counted / tp)], nodes,
                         first));
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
  TeamTable teams(part);
  AppliedTimes out;
  out.modules.assign(index(num_modules(part.model)), 0);
  Nodes nodes;
  for (int32_t r = 0; r < part.grid.world(); ++r)
    nodes.push_back(part.node_of(rank_in_part(part, r, 0)));
  const std::vector<std::vector<int32_t>> members = matrices_by_home(part);
  for (size_t home = 0; home < members.size(); ++home) {
    if (members[home].empty()) continue;
    const auto first = static_cast<int32_t>(home) * part.grid.tp;
    const HomeStepTimes times =
        HomeStep(part, *rule, teams, members[home], nodes, first)
            .times(part.period > 1 ? -1 : 0);
    out.all = std::max(out.all, std::ranges::max(times.rank_seconds));
    for (const int32_t m : members[home]) {
      const Tensor& tensor =
          part.model.tensors[index(part.matrices[index(m)].tensor)];
      double& applied = out.modules[index(module_of(part.model, tensor))];
      const auto round = index(part.micro_group[index(m)]);
      applied = std::max(applied, std::ranges::max(times.applied[round]));
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

#include "canzona/plan/predict/step_times.h"

#include <algorithm>
#include <array>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {

// The elements that move in one round, from each rank to each owner or member
// and back. Few of the ranks of a home own matrices of a round.
class HomeStep::MovedElements {
 public:
  explicit MovedElements(const Mesh& grid)
      : grid_(grid), num_ranks_(index(grid.tp)) {}

  // Adds a matrix of the tensor, or strips of it, of which each rank stores
  // `elements`.
  void add(const Tensor& tensor, int32_t owner, bool repeated,
           std::span<const int64_t> elements) {
    std::vector<int64_t>& gathered = of_owner(gathered_, owner);
    std::vector<int64_t>& scattered = of_owner(scattered_, owner);
    for (size_t t = 0; t < num_ranks_; ++t) {
      if (sends_to(grid_, tensor, static_cast<int32_t>(t), owner))
        gathered[t] += elements[t];
      if (!repeated) scattered[t] += elements[t];
    }
  }

  // `bytes` are those of an element. Messages are sorted by sender, then by
  // receiver.
  std::vector<StepMessage> to_owners(const HomeStep& home,
                                     int64_t bytes) const {
    std::vector<StepMessage> out;
    for (int32_t from = 0; from < std::ssize(home.nodes_); ++from)
      for (const auto& [owner, elements] : gathered_)
        add_message(home, from, owner, elements[index(from)] * bytes, out);
    return out;
  }
  std::vector<StepMessage> from_owners(const HomeStep& home,
                                       int64_t bytes) const {
    std::vector<StepMessage> out;
    for (const auto& [owner, elements] : scattered_)
      for (int32_t to = 0; to < std::ssize(home.nodes_); ++to)
        add_message(home, owner, to, elements[index(to)] * bytes, out);
    return out;
  }

 private:
  using ByOwner = std::map<int32_t, std::vector<int64_t>>;  // and by rank

  std::vector<int64_t>& of_owner(ByOwner& all, int32_t owner) const {
    std::vector<int64_t>& elements = all[owner];
    elements.resize(num_ranks_, 0);
    return elements;
  }
  static void add_message(const HomeStep& home, int32_t from, int32_t to,
                          int64_t bytes, std::vector<StepMessage>& out) {
    if (from != to && bytes > 0) out.push_back(home.message(from, to, bytes));
  }

  const Mesh& grid_;
  size_t num_ranks_;
  ByOwner gathered_, scattered_;
};

HomeStep::HomeStep(const PlanPart& part, const RuleFacts& rule,
                   TeamCosts& costs, std::span<const HomeMatrix> matrices,
                   std::span<const int32_t> nodes)
    : part_(part),
      rule_(rule),
      costs_(costs),
      nodes_(nodes.begin(), nodes.end()),
      num_ranks_(part.grid.tp) {
  for (size_t i = 0, end = 0; i < matrices.size(); i = end) {
    while (end < matrices.size() && matrices[end].round == matrices[i].round)
      ++end;
    rounds_.resize(index(matrices[i].round) + 1);
    add_round(matrices.subspan(i, end - i));
  }
  for (RoundWork& work : rounds_)
    if (work.every_step.empty()) add_work({}, work);
}

StepMessage HomeStep::message(int32_t from, int32_t to, int64_t bytes) const {
  const Links& links = part_.options.links;
  const bool near = nodes_[index(from)] == nodes_[index(to)];
  return {from, to, near, links.port_seconds(near, bytes), links.latency(near)};
}

void HomeStep::add_round(std::span<const HomeMatrix> matrices) {
  MovedElements moved(part_.grid);
  RoundWork& work = rounds_[index(matrices.front().round)];
  for (const HomeMatrix& of : matrices) {
    if (is_in_blocks(of)) {
      add_blocks(of, moved);
    } else if (of.owners.size() > 1) {
      work.teams.push_back(add_team(of, moved));
      work.team_refreshes.push_back(refresh_of_team(of));
    } else if (num_ranks_ > 1) {
      add_whole(of, moved);
    }
  }
  const int64_t bytes =
      part_.given ? part_.given->bytes_per_element() : kBytesPerFp32;
  work.gather = moved.to_owners(*this, rule_.gather_fields() * bytes);
  work.scatter = moved.from_owners(*this, bytes);
  add_work(matrices, work);
}

void HomeStep::add_whole(const HomeMatrix& of, MovedElements& moved) const {
  const Tensor& tensor =
      part_.model.tensors[index(part_.matrices[index(of.matrix)].tensor)];
  const std::vector<int64_t> own = elements_by_rank(part_, of.matrix);
  for (int32_t t = 0; of.owners.empty() && t < num_ranks_; ++t)
    moved.add(tensor, t, true, own);
  for (const int32_t t : of.owners) moved.add(tensor, t, false, own);
}

const MatrixBlocks& HomeStep::blocks_of(int32_t matrix) {
  const Matrix& of = part_.matrices[index(matrix)];
  const MatrixShape shape = shape_of(of);
  const auto found = blocks_.find(shape);
  if (found != blocks_.end()) return found->second;
  return blocks_.emplace(shape, MatrixBlocks(rule_, shape)).first->second;
}

void HomeStep::add_blocks(const HomeMatrix& of, MovedElements& moved) {
  const Tensor& tensor =
      part_.model.tensors[index(part_.matrices[index(of.matrix)].tensor)];
  for (const MatrixShare& share : shares_of_blocks(
           blocks_of(of.matrix), part_.costs[index(of.matrix)], of.owners))
    moved.add(tensor, share.t, false,
              elements_within(part_, of.matrix, share.rectangles));
}

StepTeam HomeStep::add_team(const HomeMatrix& of, MovedElements& moved) {
  const Matrix& matrix = part_.matrices[index(of.matrix)];
  const MatrixShape shape = shape_of(matrix);
  const Tensor& tensor = part_.model.tensors[index(matrix.tensor)];
  const StripFacts& facts = costs_.strips(shape);
  const auto num_members = static_cast<int32_t>(of.owners.size());
  for (int32_t i = 0; i < num_members; ++i)
    moved.add(tensor, of.owners[index(i)], false,
              elements_within(part_, of.matrix,
                              assembled_by(shape, facts, num_members, i)));
  const TeamSize cost =
      costs_.team(shape, part_.costs[index(of.matrix)], num_members);
  StepTeam team;
  team.members.assign(of.owners.begin(), of.owners.end());
  team.segments = std::max(facts.segments, 1);
  const double segment = part_.cost_basis.seconds_per_tick / team.segments;
  const double in_sums = facts.strip.value() > 0
                             ? static_cast<double>(facts.strip_sum.value()) *
                                   team.segments /
                                   static_cast<double>(facts.strip.value())
                             : 0;
  // An owner with a helper does an ordinary step alone.
  team.has_helper = facts.has_helper();
  const auto own =
      static_cast<double>(team.has_helper ? cost.at_head() : cost.member);
  team.sum = own * in_sums * segment;
  team.multiply = own * (1 - in_sums) * segment;
  if (!team.has_helper) team.iterate = static_cast<double>(cost.head) * segment;
  add_exchanges(facts, team);
  return team;
}

namespace {

// Returns the share of `part` in itself and `rest`.
double share_of(Flops part, Flops rest) {
  const auto all = static_cast<double>((part + rest).value());
  return all > 0 ? static_cast<double>(part.value()) / all : 0;
}

}  // namespace

// In a refresh members move their states to what the head has found, or an
// owner to what it has and its helper.
HomeStep::TeamRefresh HomeStep::refresh_of_team(const HomeMatrix& of) {
  const Matrix& matrix = part_.matrices[index(of.matrix)];
  const MatrixShape shape = shape_of(matrix);
  const TeamSize cost = costs_.refresh(shape, part_.costs[index(of.matrix)],
                                       static_cast<int32_t>(of.owners.size()));
  const StripFacts& facts = costs_.strips(shape);
  const double segment =
      part_.cost_basis.seconds_per_tick / std::max(facts.segments, 1);
  TeamRefresh out;
  out.phase = part_.phase[index(of.matrix)];
  out.factors_at_refresh = facts.factors_at_refresh;
  out.has_helper = facts.has_helper();
  if (out.has_helper) {
    const double after = share_of(facts.strip_refresh, facts.head_refresh);
    const double own = static_cast<double>(cost.at_head()) * segment;
    out.multiply = own * after;
    out.iterate = own * (1 - after);
    out.help = static_cast<double>(cost.member) * segment;
  } else {
    out.multiply = static_cast<double>(cost.member) * segment;
    out.iterate = static_cast<double>(cost.head) * segment;
  }
  return out;
}

StepTeam HomeStep::team_in_step(const RoundWork& work, size_t team,
                                int32_t phase) {
  StepTeam out = work.teams[team];
  const TeamRefresh& refresh = work.team_refreshes[team];
  if (phase == refresh.phase) {
    out.multiply += refresh.multiply;
    out.iterate += refresh.iterate;
    out.help += refresh.help;
  } else if (refresh.factors_at_refresh) {
    const auto clear = [&](Purpose purpose) {
      out.exchanges[index(static_cast<int>(purpose) -
                          static_cast<int>(Purpose::kTeamNorms))]
          .clear();
    };
    clear(Purpose::kTeamFactors);
    clear(Purpose::kTeamPasses);
    if (refresh.has_helper) clear(Purpose::kTeamSums);
  }
  return out;
}

void HomeStep::add_exchanges(const StripFacts& facts, StepTeam& team) {
  SharedMatrix shared;
  shared.members = team.members;
  shared.facts = facts;
  for (int32_t i = 0; i < shared.size(); ++i) {
    shared.member = i;
    const int32_t from = shared.members[index(i)];
    for (int p = 0; p < kNumTeamPurposes; ++p) {
      const auto purpose =
          static_cast<Purpose>(static_cast<int>(Purpose::kTeamNorms) + p);
      const ExchangeTable moved = team_exchange(shared, num_ranks_, purpose);
      for (const int32_t to : shared.members) {
        const int64_t bytes = moved.send_bytes[index(to)];
        if (to != from && bytes > 0)
          team.exchanges[index(p)].push_back(message(from, to, bytes));
      }
    }
  }
}

std::vector<HomeStep::OwnWork> HomeStep::own_work(
    std::span<const HomeMatrix> matrices) {
  std::vector<OwnWork> all;
  for (const HomeMatrix& of : matrices) {
    const MatrixCost& cost = part_.costs[index(of.matrix)];
    if (of.owners.size() == 1) all.push_back({of.owners[0], of.matrix, cost});
    for (int32_t t = 0; of.owners.empty() && t < num_ranks_; ++t)
      all.push_back({t, of.matrix, cost});
    if (!is_in_blocks(of)) continue;
    for (const MatrixShare& share :
         shares_of_blocks(blocks_of(of.matrix), cost, of.owners))
      all.push_back({share.t, of.matrix, share.cost});
  }
  return all;
}

void HomeStep::add_work(std::span<const HomeMatrix> matrices, RoundWork& work) {
  std::vector<int32_t> of_teams;
  for (const StepTeam& team : work.teams) of_teams.push_back(team.segments);
  const int32_t segments = num_segments(of_teams);
  const size_t phases = index(part_.phases);
  work.every_step.assign(index(segments) * index(num_ranks_), 0);
  work.refresh.assign(work.every_step.size() * phases, 0);
  const auto add = [&](const OwnWork& own, int32_t segment) {
    const size_t at = index(segment) * index(num_ranks_) + index(own.rank);
    work.every_step[at] += own.cost.every_step.value();
    work.refresh[at * phases + index(part_.phase[index(own.matrix)])] +=
        own.cost.refresh.value();
  };
  const std::vector<OwnWork> all = own_work(matrices);
  if (segments == 1) {
    for (const OwnWork& own : all) add(own, 0);
    return;
  }
  for (int32_t rank = 0; rank < num_ranks_; ++rank) {
    std::vector<OwnWork> own;
    std::vector<int64_t> ticks;
    for (const OwnWork& some : all) {
      if (some.rank != rank) continue;
      own.push_back(some);
      ticks.push_back(some.cost.every_step.value());
    }
    const std::vector<int32_t> at = spread_over_segments(ticks, segments);
    for (size_t i = 0; i < own.size(); ++i) add(own[i], at[i]);
  }
}

std::vector<StepStage> HomeStep::stages(int32_t phase) const {
  std::vector<StepRound> rounds;
  for (const RoundWork& work : rounds_) {
    StepRound& round = rounds.emplace_back();
    round.gather = work.gather;
    round.scatter = work.scatter;
    for (size_t i = 0; i < work.teams.size(); ++i)
      round.teams.push_back(team_in_step(work, i, phase));
    for (size_t at = 0; at < work.every_step.size(); ++at)
      round.transform.push_back(seconds_of(work, at, phase));
  }
  return step_stages(std::move(rounds));
}

double HomeStep::seconds_of(const RoundWork& work, size_t at,
                            int32_t phase) const {
  int64_t ticks = work.every_step[at];
  if (phase >= 0)
    ticks += work.refresh[at * index(part_.phases) + index(phase)];
  return static_cast<double>(ticks) * part_.cost_basis.seconds_per_tick;
}

}  // namespace canzona::plan

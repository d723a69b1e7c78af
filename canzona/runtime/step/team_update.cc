#include "canzona/runtime/step/team_update.h"

#include <utility>

#include "canzona/rules/runs.h"

namespace canzona {
namespace {

constexpr std::array kPurposes = {Purpose::kTeamNorms, Purpose::kTeamSums,
                                  Purpose::kTeamTotals, Purpose::kTeamFactors,
                                  Purpose::kTeamPasses};

size_t number_of(Purpose purpose) {
  return index(static_cast<int>(purpose) -
               static_cast<int>(Purpose::kTeamNorms));
}

// Returns this rank's shares of the matrices that teams share, by round.
std::vector<std::vector<TeamWork>> team_works(const Rank& rank) {
  std::vector<std::vector<TeamWork>> rounds;
  for (size_t r = 0; r < rank.rounds.size(); ++r) {
    std::vector<TeamWork>& list = rounds.emplace_back();
    std::byte* memory = rank.store.rooms();
    for (const SharedMatrix& planned : rank.rounds[r].shared) {
      const KeptMatrix& kept = rank.kept.matrices[index(planned.kept)];
      TeamWork& work = list.emplace_back();
      work.planned = &planned;
      work.shape = {kept.dims[0], kept.dims[1]};
      work.tensor = rank.tensor(rank.tensor_of(kept)).name;
      work.rule = rank.rules.of(rank.tensor_of(kept)).rule.get();
      work.phase = rank.part.phase[index(planned.matrix)];
      for (const KeptState& state : rank.updates.shared[r][list.size() - 1].own)
        work.states.push_back(run_of(rank.store.states() + state.first));
      work.room = memory;
      memory += team_room(planned).bytes;
    }
  }
  return rounds;
}

}  // namespace

TeamUpdate::TeamUpdate(Rank& rank)
    : rank_(rank), stages_(rank.engine, team_works(rank)) {
  for (size_t r = 0; r < rank.rounds.size(); ++r) {
    std::vector<Shared>& list = rounds_.emplace_back();
    for (const SharedMatrix& planned : rank.rounds[r].shared) {
      Shared& shared = list.emplace_back();
      shared.planned = &planned;
      for (const Purpose purpose : kPurposes)
        shared.exchanges[number_of(purpose)] =
            team_exchange(planned, rank.part.grid.tp, purpose);
    }
  }
}

void TeamUpdate::begin(int64_t step) {
  step_ = step;
  room_of_ = -1;
  for (size_t r = 0; r < rounds_.size(); ++r)
    for (size_t s = 0; s < rounds_[r].size(); ++s) {
      const TeamWork& work = stages_.work(r, s);
      rounds_[r][s].exchanges_factors =
          !work.planned->facts.factors_at_refresh ||
          work.rule->facts().refreshes(step, work.phase);
    }
}

void TeamUpdate::await(const ScheduleEntry& stage) {
  Shared& shared = at(index(stage.round), index(stage.shared));
  switch (stage.kind) {
    case EntryKind::kLoadStrips:
      if (std::exchange(room_of_, stage.round) != stage.round) wait(last_);
      return;
    case EntryKind::kScaleStrips:
      return wait(shared, Purpose::kTeamNorms);
    case EntryKind::kSumStrips:
      if (stage.segment == 0 &&
          !stages_.is_scaled(index(stage.round), index(stage.shared)))
        wait(shared, Purpose::kTeamNorms);
      return;
    case EntryKind::kRoundSum:
      return wait(shared, Purpose::kTeamSums);
    case EntryKind::kIterate:
      if (!shared.planned->is_head())  // a helper
        return wait(shared, Purpose::kTeamSums);
      wait(shared, Purpose::kTeamTotals);
      if (stage.segment > 0)  // its previous factor is in transit
        wait(shared, Purpose::kTeamFactors);
      return;
    default:
      if (!shared.planned->is_head()) wait(shared, Purpose::kTeamPasses);
      if (shared.planned->facts.has_helper())
        wait(shared, Purpose::kTeamFactors);
  }
}

void TeamUpdate::run(const ScheduleEntry& stage, float* slot) {
  stages_.run(stage.kind, index(stage.round), index(stage.shared),
              stage.segment, step_, run_of(slot));
}

void TeamUpdate::exchange(const ShownEntry& shown, bool at_once) {
  const ScheduleEntry& e = *shown.entry;
  Shared& shared = at(index(e.round), index(e.shared));
  if (!is_exchanged(shared, e.purpose)) return;
  const size_t number = number_of(e.purpose);
  Courier& courier = rank_.groups.teams();
  std::byte* room = stages_.work(index(e.round), index(e.shared)).room;
  const auto body = [&shared, &courier, &shown, number, room](
                        Communicator& group, const Call& call) {
    const TeamExchange& moved = shared.exchanges[number];
    const auto area = [&](const Extent& extent) {
      return std::span<std::byte>(room + extent.first, index(extent.count));
    };
    const Span span(courier.track(), shown.span);
    group.all_to_all_v(
        {area(moved.source), moved.table.send_bytes, moved.table.send_offsets},
        {area(moved.target), moved.table.receive_bytes,
         moved.table.receive_offsets},
        call);
  };
  rank_.settle(courier);
  last_ = courier.run({}, body, shown.call());
  shared.works[number] = last_;
  if (at_once) wait(last_);
}

bool TeamUpdate::is_exchanged(const Shared& shared, Purpose purpose) {
  return canzona::is_exchanged(shared.planned->facts, purpose,
                               shared.exchanges_factors);
}

void TeamUpdate::wait(Shared& shared, Purpose purpose) {
  if (is_exchanged(shared, purpose)) wait(shared.works[number_of(purpose)]);
}

void TeamUpdate::wait(Work& work) { wait_in_step(rank_, work); }

}  // namespace canzona

#include "canzona/plan/schedule/step_maker.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"

namespace canzona::plan {
namespace {

size_t number_of(Purpose purpose) {
  return static_cast<size_t>(purpose) -
         static_cast<size_t>(Purpose::kTeamNorms);
}

void append(std::vector<int32_t>& list, const std::vector<int32_t>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

std::vector<int64_t> rooms_of(const std::vector<SharedMatrix>& teams) {
  std::vector<int64_t> first{0};
  for (const SharedMatrix& team : teams)
    first.push_back(first.back() + team_room(team).bytes);
  return first;
}

std::vector<ScheduleEntry> StepMaker::make(
    const std::vector<Round>& rounds, const std::vector<int32_t>& round_at) {
  rounds_ = &rounds;
  moving_.assign(rounds.size(), {});
  if (round_at.empty()) add_unmoved();
  int32_t before = -1;  // the round that was scattered last
  for (const ExchangeStage& stage : exchange_order(
           static_cast<int32_t>(round_at.size()), settings_.num_slots)) {
    const bool scatters = stage.purpose == Purpose::kScatterMatrices;
    if (scatters && stage.round > 0) {
      before = round_at[index(stage.round - 1)];
      if (before >= 0) broadcast(before);
    }
    if (const int32_t at = round_at[index(stage.round)]; at >= 0)
      add_stage({stage.kind, stage.purpose, at});
    if (stage.round == 0 && stage.purpose == Purpose::kGatherMatrices)
      add_unmoved();
  }
  return std::move(out_);
}

void StepMaker::add_stage(const ExchangeStage& stage) {
  OfRound& moving = moving_[index(stage.round)];
  if (stage.kind == EntryKind::kTransform) return add_transforms(stage.round);
  if (stage.purpose == Purpose::kGatherMatrices) {
    moving.gathers = add_tables(stage.purpose, stage.round);
    return;
  }
  if (stage.purpose == Purpose::kScatterMatrices) {
    moving.scatters = add_tables(stage.purpose, stage.round);
    if (!is_scattered_first(stage.round)) broadcast(stage.round);
    return;
  }
  if (stage.kind == EntryKind::kApply) broadcast(stage.round);
  ScheduleEntry entry = compute(stage.kind, stage.round, 0);
  if (stage.kind == EntryKind::kApply) {
    entry.after = moving.gathers;
    append(entry.after, moving.scatters);
    append(entry.after, moving.broadcasts);
  }
  add(std::move(entry));
}

// Updates arrive where pieces were sent from.
std::vector<int32_t> StepMaker::add_tables(Purpose purpose, int32_t round) {
  std::vector<int32_t> added;
  const Round::Tables& tables = (*rounds_)[index(round)].tables(purpose);
  for (int32_t i = 0; i < Round::kNumTables; ++i) {
    if (tables[index(i)].empty) continue;
    ScheduleEntry entry = exchange(purpose, round, tables[index(i)]);
    entry.table = i;
    if (purpose == Purpose::kScatterMatrices)
      entry.after = moving_[index(round)].gathers;
    added.push_back(add(std::move(entry)));
  }
  return added;
}

void StepMaker::broadcast(int32_t round) {
  OfRound& moving = moving_[index(round)];
  if (std::exchange(moving.is_broadcast, true)) return;
  for (ScheduleEntry& entry : broadcasts(round)) {
    entry.after = moving.gathers;
    append(entry.after, moving.scatters);
    moving.broadcasts.push_back(add(std::move(entry)));
  }
}

// The stages of a round's teams, and between them what this rank computes
// alone. All rounds use the same rooms, so the first stage also waits for the
// exchanges of the rounds before.
void StepMaker::add_transforms(int32_t round) {
  const std::vector<SharedMatrix>& shared = (*rounds_)[index(round)].shared;
  const std::vector<int64_t> rooms = rooms_of(shared);
  std::vector<int32_t> segments;
  for (const OfTeam& team : teams_) append(in_rooms_, team.open);
  teams_.clear();
  for (size_t i = 0; i < shared.size(); ++i) {
    segments.push_back(shared[i].facts.segments);
    teams_.push_back({rooms[i], {}, {}});
    teams_.back().last.fill(-1);
  }
  for (const TransformStage& stage : transform_order(segments)) {
    if (stage.shared >= 0 && stage.kind == EntryKind::kAllToAll) {
      add_team_exchange(round, stage);
    } else if (stage.shared >= 0) {
      add_team_stage(round, stage);
    } else if (works_alone(round, stage.segment)) {
      ScheduleEntry entry =
          compute(EntryKind::kTransform, round, stage.segment);
      entry.segment = stage.segment;
      entry.after = moving_[index(round)].gathers;
      add(std::move(entry));
    }
  }
}

void StepMaker::finish_team(const SharedMatrix& of, const TransformStage& stage,
                            ScheduleEntry& entry) {
  entry.shared = stage.shared;
  entry.matrix = of.matrix;
  entry.segment = stage.segment;
  entry.has_helper = of.facts.has_helper();
  name_team(of, entry);
}

void StepMaker::add_team_stage(int32_t round, const TransformStage& stage) {
  const SharedMatrix& of = (*rounds_)[index(round)].shared[index(stage.shared)];
  if (!takes_part(of, stage.kind)) return;
  ScheduleEntry entry = compute(stage.kind, round, stage.segment);
  finish_team(of, stage, entry);
  entry.after = awaited(of, stage);
  if (stage.kind == EntryKind::kLoadStrips) {
    append(entry.after, moving_[index(round)].gathers);
    append(entry.after, std::exchange(in_rooms_, {}));
  }
  add(std::move(entry));
}

std::vector<int32_t> StepMaker::awaited(const SharedMatrix& of,
                                        const TransformStage& stage) {
  OfTeam& team = teams_[index(stage.shared)];
  if (!settings_.is_ordered) return std::exchange(team.open, {});
  std::vector<int32_t> after;
  const auto add_last = [&](Purpose purpose) {
    if (const int32_t last = team.last[number_of(purpose)]; last >= 0)
      after.push_back(last);
  };
  switch (stage.kind) {
    case EntryKind::kLoadStrips:
      break;
    case EntryKind::kScaleStrips:
      add_last(Purpose::kTeamNorms);
      break;
    case EntryKind::kSumStrips:
      if (stage.segment == 0) add_last(Purpose::kTeamNorms);
      break;
    case EntryKind::kRoundSum:
      add_last(Purpose::kTeamSums);
      break;
    case EntryKind::kIterate:
      // A helper has what the owner sent; the head's previous factor may still
      // be on its way.
      add_last(of.is_head() ? Purpose::kTeamTotals : Purpose::kTeamSums);
      if (of.is_head() && stage.segment > 0) add_last(Purpose::kTeamFactors);
      break;
    default:
      if (!of.is_head()) add_last(Purpose::kTeamPasses);
      if (of.facts.has_helper()) add_last(Purpose::kTeamFactors);
  }
  return after;
}

// Ranks that are not members take part with empty messages.
void StepMaker::add_team_exchange(int32_t round, const TransformStage& stage) {
  const SharedMatrix& of = (*rounds_)[index(round)].shared[index(stage.shared)];
  if (!settings_.lists_idle && !is_exchanged(of.facts, stage.purpose, true))
    return;
  OfTeam& team = teams_[index(stage.shared)];
  ExchangeTable table = team_exchange(of, num_planes(round), stage.purpose);
  table.source.first += team.room;
  table.target.first += team.room;
  ScheduleEntry entry = exchange(stage.purpose, round, table);
  finish_team(of, stage, entry);
  // A member passes on only sums that have arrived.
  if (stage.purpose == Purpose::kTeamPasses && !settings_.is_ordered)
    entry.after = std::exchange(team.open, {});
  const int32_t number = add(std::move(entry));
  team.open.push_back(number);
  team.last[number_of(stage.purpose)] = number;
}

}  // namespace canzona::plan

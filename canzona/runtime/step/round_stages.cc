#include "canzona/runtime/step/round_stages.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/plan/schedule/step_maker.h"

namespace canzona::runtime {

RoundStages::RoundStages(const StoredMatrices& stored,
                         const StepEngines& engines,
                         const std::vector<Round>& rounds,
                         const UpdatePlan& updates, bool gradients_move)
    : stored_(stored),
      engines_(engines),
      rounds_(rounds),
      updates_(updates),
      gradients_move_(gradients_move),
      stages_(stored, engines) {
  for (size_t r = 0; r < rounds.size(); ++r) {
    batches_.push_back(matrix_batches(updates.batches[r], rounds[r].computed));
    orders_.push_back(by_work(updates.batches[r]));
  }
}

std::vector<int32_t> RoundStages::by_work(
    const std::vector<UpdateBatch>& batches) const {
  std::vector<int32_t> order(batches.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](int32_t b) {
    const UpdateBatch& batch = batches[index(b)];
    return stored_.rule_of(batch.members[0])
               .facts()
               .work({batch.dims[0], batch.dims[1]})
               .every_step *
           std::ssize(batch.members);
  });
  return order;
}

void RoundStages::make_teams() {
  if (teams_ != nullptr) return;
  std::vector<std::vector<TeamWork>> works;
  for (size_t r = 0; r < rounds_.size(); ++r) {
    const std::vector<SharedMatrix>& shared = rounds_[r].shared;
    const std::vector<int64_t> rooms = rooms_of(shared);
    std::vector<TeamWork>& list = works.emplace_back();
    for (size_t i = 0; i < shared.size(); ++i) {
      const int32_t tensor = stored_.tensor_of(shared[i].matrix);
      TeamWork& work = list.emplace_back();
      work.planned = &shared[i];
      work.tensor = stored_.name_of(tensor);
      work.rule = &stored_.rule_of_tensor(tensor);
      for (const KeptState& state : updates_.shared[r][i].own)
        work.states.push_back(run_of(stored_.owned(state)));
      work.room = stored_.rooms() + rooms[i];
    }
  }
  teams_ = std::make_unique<TeamStages>(engines_.lead, std::move(works));
}

void RoundStages::run(const ScheduleEntry& entry) {
  const auto round = index(entry.round);
  const Run slot = stored_.slot(round);
  switch (entry.kind) {
    case EntryKind::kPrepare:
      return prepare(rounds_[round], slot);
    case EntryKind::kTransform:
      return transform(round, entry.segment, slot);
    case EntryKind::kApply:
      return apply(rounds_[round], slot);
    default:
      return team_stage(entry, slot);
  }
}

template <class Work>
void RoundStages::touch_gradients(const Work& work) const {
  if (gradients_move_)
    engines_.guarded(work);
  else
    engines_.repeated(work);
}

void RoundStages::prepare(const Round& round, Run slot) {
  touch_gradients([&] {
    engines_.for_each(std::ssize(round.prepared), [&](Engine& lane, int64_t i) {
      stages_.prepare(lane, round.prepared[index(i)], slot);
    });
  });
}

void RoundStages::apply(const Round& round, Run slot) {
  touch_gradients([&] {
    engines_.for_each(std::ssize(round.applied), [&](Engine& lane, int64_t i) {
      stages_.apply(lane, round.applied[index(i)], slot);
    });
  });
}

void RoundStages::transform(size_t round, int32_t segment, Run slot) {
  const std::vector<MatrixBatch>& batches = batches_[round];
  const auto of_segment = [&](int32_t b) {
    return batches[index(b)].planned->segment == segment;
  };
  if (std::ranges::none_of(orders_[round], of_segment)) return;
  engines_.repeated([&] {
    engines_.for_each(std::ssize(batches), [&](Engine& lane, int64_t i) {
      const int32_t b = orders_[round][index(i)];
      if (of_segment(b)) stages_.transform(lane, batches[index(b)], slot);
    });
  });
}

void RoundStages::team_stage(const ScheduleEntry& entry, Run slot) {
  const int32_t tensor = stored_.tensor_of(team_of(entry).matrix);
  if (!stored_.tensor_has_gradient(tensor)) return;
  make_teams();
  engines_.repeated([&] {
    teams_->run(entry.kind, index(entry.round), index(entry.shared),
                entry.segment, stored_.step_of_tensor(tensor).step, slot);
  });
}

bool RoundStages::needs(const ScheduleEntry& entry, int64_t step) const {
  const SharedMatrix& team = team_of(entry);
  const RuleFacts& facts =
      stored_.rule_of_tensor(stored_.tensor_of(team.matrix)).facts();
  return is_exchanged(
      team.facts, entry.purpose,
      !team.facts.factors_at_refresh || facts.refreshes(step, team.phase));
}

bool RoundStages::is_scaled(const ScheduleEntry& entry) {
  return teams_ != nullptr &&
         teams_->is_scaled(index(entry.round), index(entry.shared));
}

}  // namespace canzona::runtime

#include "canzona/plan/predict/step_times.h"

#include <algorithm>
#include <array>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {
namespace {

StepThread thread_of(const ExchangeStage& stage) {
  if (stage.kind != EntryKind::kAllToAll) return StepThread::kCompute;
  return stage.purpose == Purpose::kGatherMatrices ? StepThread::kGather
                                                   : StepThread::kScatter;
}

// A rank's part in a stage, or one message of it, and when it would begin if
// links took no time. Those that begin at once are in the order of their
// numbers.
struct StepEvent {
  double begin = 0;
  int32_t stage = 0;
  int32_t number = 0;  // a rank, or num_ranks + a message
};

class StepClock {
 public:
  StepClock(const std::vector<StepStage>& stages, int32_t num_ranks)
      : stages_(stages),
        num_ranks_(num_ranks),
        posted_(stages.size() * index(num_ranks), 0),
        ended_(posted_),
        before_(stages.size(), -1) {
    std::array<int32_t, kNumStepThreads> last;
    last.fill(-1);
    for (size_t s = 0; s < stages.size(); ++s)
      before_[s] = std::exchange(last[static_cast<size_t>(stages[s].thread)],
                                 static_cast<int32_t>(s));
    for (auto& port : free_) port.assign(index(num_ranks), 0);
  }

  // Returns events in list order, for links that take no time.
  std::vector<StepEvent> order() {
    std::vector<StepEvent> events;
    for (int32_t s = 0; s < std::ssize(stages_); ++s) {
      for (int32_t r = 0; r < num_ranks_; ++r) {
        begin(s, r);
        events.push_back({posted(s, r), s, r});
      }
      const auto& messages = stages_[index(s)].messages;
      for (int32_t m = 0; m < std::ssize(messages); ++m) {
        const auto& [from, to] = ends_of(messages[index(m)]);
        const double at = std::max(posted(s, from), posted(s, to));
        for (int32_t end : {from, to})
          ended(s, end) = std::max(ended(s, end), at);
        events.push_back({at, s, num_ranks_ + m});
      }
    }
    std::ranges::stable_sort(events, {}, &StepEvent::begin);
    return events;
  }

  void run(const std::vector<StepEvent>& events) {
    for (const StepEvent& event : events) {
      if (event.number < num_ranks_)
        begin(event.stage, event.number);
      else
        pass(event.stage, stages_[index(event.stage)]
                              .messages[index(event.number - num_ranks_)]);
    }
  }

  double ended_at(int32_t stage, int32_t rank) const {
    return ended_[at(stage, rank)];
  }

 private:
  struct Ends {
    int32_t from, to;
  };
  static Ends ends_of(const StepMessage& message) {
    return {message.from, message.to};
  }

  size_t at(int32_t stage, int32_t rank) const {
    return index(stage) * index(num_ranks_) + index(rank);
  }
  double& posted(int32_t stage, int32_t rank) {
    return posted_[at(stage, rank)];
  }
  double& ended(int32_t stage, int32_t rank) { return ended_[at(stage, rank)]; }

  void begin(int32_t stage, int32_t rank) {
    const StepStage& s = stages_[index(stage)];
    const int32_t before = before_[index(stage)];
    double time = before < 0 ? 0 : ended(before, rank);
    if (!s.ranks.empty() && std::ranges::find(s.ranks, rank) == s.ranks.end()) {
      posted(stage, rank) = ended(stage, rank) = time;
      return;
    }
    for (int32_t other : s.waits) {
      CANZONA_CHECK(other >= 0 && other < stage, "stage ", stage, " waits for ",
                    other);
      time = std::max(time, ended(other, rank));
    }
    posted(stage, rank) = time;
    ended(stage, rank) =
        time + (s.seconds.empty() ? 0 : s.seconds[index(rank)]);
  }

  void pass(int32_t stage, const StepMessage& message) {
    const auto& [from, to] = ends_of(message);
    const double ready = std::max(posted(stage, from), posted(stage, to));
    const size_t link = message.near ? 0 : 2;
    const auto hold = [&](double& free) {
      free = std::max(free, ready) + message.port_seconds;
      return free;
    };
    const double left = std::max(hold(free_[link][index(from)]),
                                 hold(free_[link + 1][index(to)]));
    for (int32_t end : {from, to})
      ended(stage, end) =
          std::max(ended(stage, end), left + message.latency_seconds);
  }

  const std::vector<StepStage>& stages_;
  int32_t num_ranks_;
  // The times, by stage and rank, at which the rank's thread reached the stage
  // and at which the stage ended.
  std::vector<double> posted_, ended_;
  std::vector<int32_t> before_;  // the stage before it in its thread, or -1
  // The times from which each rank's ports are free: sending and receiving
  // inside the node, then sending and receiving between nodes.
  std::array<std::vector<double>, 4> free_;
};

// Puts the stages of rounds into one list, each with the stages it waits for.
class StageMaker {
 public:
  explicit StageMaker(std::vector<StepRound>& rounds)
      : rounds_(rounds), last_(rounds.size(), -1), gathered_(last_) {}

  // A stage that is no transform waits for the previous one of its round.
  std::vector<StepStage> make() {
    for (const ExchangeStage& planned :
         exchange_order(static_cast<int32_t>(rounds_.size()))) {
      StepRound& round = rounds_[index(planned.round)];
      if (planned.kind == EntryKind::kTransform) {
        add_transforms(planned.round, round);
        continue;
      }
      StepStage stage = stage_of(planned.kind, planned.round);
      stage.thread = thread_of(planned);
      if (stage.thread == StepThread::kGather) {
        stage.messages = std::move(round.gather);
        gathered_[index(planned.round)] = static_cast<int32_t>(out_.size());
      }
      if (stage.thread == StepThread::kScatter)
        stage.messages = std::move(round.scatter);
      int32_t& before = last_[index(planned.round)];
      if (before >= 0) stage.waits.push_back(before);
      before = add(std::move(stage));
    }
    return std::move(out_);
  }

 private:
  static StepStage stage_of(EntryKind kind, int32_t round) {
    return {.kind = kind, .round = round};
  }

  int32_t add(StepStage stage) {
    if (stage.thread == StepThread::kCompute)
      computed_ = static_cast<int32_t>(out_.size());
    out_.push_back(std::move(stage));
    return static_cast<int32_t>(out_.size()) - 1;
  }

  void add_transforms(int32_t number, StepRound& round) {
    std::vector<int32_t> segments;
    for (const StepTeam& team : round.teams) segments.push_back(team.segments);
    const size_t num_ranks =
        round.transform.size() / index(num_segments(segments));
    CANZONA_CHECK(segments.empty() || num_ranks > 0, "a team without a home");
    moved_.assign(segments.size(), {});
    for (auto& of_team : moved_) of_team.fill(-1);
    const int32_t moved_before = moved_last_;
    for (const TransformStage& planned : transform_order(segments)) {
      if (planned.shared < 0) {
        StepStage stage = stage_of(EntryKind::kTransform, number);
        const auto first = round.transform.begin() +
                           static_cast<int64_t>(num_ranks) * planned.segment;
        stage.seconds.assign(first, first + static_cast<int64_t>(num_ranks));
        stage.waits = {gathered_[index(number)]};
        last_[index(number)] = add(std::move(stage));
        continue;
      }
      const StepTeam& team = round.teams[index(planned.shared)];
      if (planned.kind == EntryKind::kAllToAll)
        add_exchange(number, team, planned);
      else
        add_stages(number, team, planned, num_ranks, moved_before);
    }
  }

  // A member posts the exchange when its compute has reached it.
  void add_exchange(int32_t round, const StepTeam& team,
                    const TransformStage& planned) {
    StepStage stage = stage_of(EntryKind::kAllToAll, round);
    stage.thread = StepThread::kTeams;
    stage.ranks = team.members;
    stage.messages = team.exchanges[number_of(planned.purpose)];
    if (computed_ >= 0) stage.waits.push_back(computed_);
    moved_last_ = add(std::move(stage));
    moved_of(planned.shared, planned.purpose) = moved_last_;
  }

  // The head already has the factor and multiplies by it; the others wait for
  // it. An owner waits for its helper's.
  void add_stages(int32_t round, const StepTeam& team,
                  const TransformStage& planned, size_t num_ranks,
                  int32_t moved_before) {
    const std::vector<int32_t> head(team.members.begin(),
                                    team.members.begin() + 1);
    const std::vector<int32_t> others(team.members.begin() + 1,
                                      team.members.end());
    const auto add_of = [&](const std::vector<int32_t>& ranks, double seconds,
                            std::vector<int32_t> waits) {
      StepStage stage = stage_of(planned.kind, round);
      stage.ranks = ranks;
      stage.seconds.assign(num_ranks, seconds);
      std::erase(waits, -1);
      stage.waits = std::move(waits);
      last_[index(round)] = add(std::move(stage));
    };
    const auto moved = [&](Purpose purpose) {
      return moved_of(planned.shared, purpose);
    };
    // Those that have strips, or all of the matrix.
    const std::vector<int32_t>& computing =
        team.has_helper ? head : team.members;
    switch (planned.kind) {
      case EntryKind::kLoadStrips:
        return add_of(team.members, 0, {gathered_[index(round)], moved_before});
      case EntryKind::kScaleStrips:
        return add_of(computing, 0, {moved(Purpose::kTeamNorms)});
      case EntryKind::kSumStrips:
        return add_of(computing, team.sum, {});
      case EntryKind::kRoundSum:
        if (!team.has_helper)
          add_of(team.members, 0, {moved(Purpose::kTeamSums)});
        return;
      case EntryKind::kIterate:
        add_of(head, team.iterate,
               {moved(Purpose::kTeamTotals), moved(Purpose::kTeamFactors)});
        if (team.has_helper)
          add_of(others, team.help, {moved(Purpose::kTeamSums)});
        return;
      default:
        if (team.has_helper)
          return add_of(head, team.multiply, {moved(Purpose::kTeamFactors)});
        add_of(head, team.multiply, {});
        if (!others.empty())
          add_of(others, team.multiply, {moved(Purpose::kTeamPasses)});
    }
  }

  static size_t number_of(Purpose purpose) {
    return index(static_cast<int>(purpose) -
                 static_cast<int>(Purpose::kTeamNorms));
  }
  // The last exchange of this kind by a team of the round; -1 if there is none
  // yet.
  int32_t& moved_of(int32_t shared, Purpose purpose) {
    return moved_[index(shared)][number_of(purpose)];
  }

  std::vector<StepRound>& rounds_;
  std::vector<StepStage> out_;
  std::vector<int32_t> last_;      // stage of each round so far, or -1
  std::vector<int32_t> gathered_;  // the gather of each round, or -1
  int32_t computed_ = -1;          // the last stage of compute
  int32_t moved_last_ = -1;        // the last exchange of any team
  std::vector<std::array<int32_t, kNumTeamPurposes>> moved_;
};

}  // namespace

std::vector<StepStage> step_stages(std::vector<StepRound> rounds) {
  return StageMaker(rounds).make();
}

HomeStepTimes step_times(const std::vector<StepStage>& stages,
                         int32_t num_ranks) {
  const std::vector<StepEvent> order = StepClock(stages, num_ranks).order();
  StepClock clock(stages, num_ranks);
  clock.run(order);
  HomeStepTimes times;
  times.rank_seconds.assign(index(num_ranks), 0);
  for (int32_t s = 0; s < std::ssize(stages); ++s) {
    const StepStage& stage = stages[index(s)];
    std::vector<double> ends;
    for (int32_t r = 0; r < num_ranks; ++r) {
      ends.push_back(clock.ended_at(s, r));
      double& seconds = times.rank_seconds[index(r)];
      seconds = std::max(seconds, ends.back());
    }
    if (stage.kind != EntryKind::kApply) continue;
    times.applied.resize(
        std::max(times.applied.size(), index(stage.round) + 1));
    times.applied[index(stage.round)] = std::move(ends);
  }
  return times;
}

}  // namespace canzona::plan

#include "canzona/plan/predict/step_times.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/plan/schedule/rank_entries.h"

namespace canzona {
namespace {

StepThread thread_of(const ExchangeStage& stage) {
  if (stage.kind != EntryKind::kAllToAll) return StepThread::kCompute;
  return stage.purpose == Purpose::kGatherMatrices ? StepThread::kGather
                                                   : StepThread::kScatter;
}

// What one rank does in a stage, or one message of it, and when it would begin
// if links took no time.
struct StepEvent {
  double begin = 0;
  int32_t stage = 0;
  int32_t number = 0;  // a rank, or num_ranks + a message

  bool operator<(const StepEvent& other) const {
    return std::tuple(begin, stage, number) <
           std::tuple(other.begin, other.stage, other.number);
  }
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

  // In the order of the list, on links that take no time.
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
    std::sort(events.begin(), events.end());
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
  // Of each stage, by rank: its thread has come to it; it has ended.
  std::vector<double> posted_, ended_;
  std::vector<int32_t> before_;  // the stage before it in its thread, or -1
  // Sending and receiving inside the node, sending and receiving between nodes.
  std::array<std::vector<double>, 4> free_;
};

// The stages of strips that go one by one, in the order of RankEntries:
// gathered before the round's other matrices, summed, iterated, and, when these
// are transformed and on their way, multiplied and scattered.
class StripStages {
 public:
  StripStages(std::vector<StepStage>& stages, std::vector<StepRound>& rounds)
      : stages_(stages), rounds_(rounds), gathers_(rounds.size()) {}

  void add_gathers(int32_t round, int32_t prepared) {
    for (StepStrips& strips : rounds_[index(round)].strips) {
      add(EntryKind::kAllToAll, round, StepThread::kGather, prepared);
      stages_.back().messages = std::move(strips.gather);
      gathers_[index(round)].push_back(last());
    }
  }

  void add_sums(int32_t round) {
    StepRound& of = rounds_[index(round)];
    if (of.strips.empty()) return;
    for (size_t i = 0; i < of.strips.size(); ++i) {
      add(EntryKind::kSumStrips, round, StepThread::kCompute,
          gathers_[index(round)][i]);
      stages_.back().seconds = std::move(of.strips[i].sum);
    }
    add(EntryKind::kIterate, round, StepThread::kCompute, last());
    stages_.back().seconds = std::move(of.iterate);
  }

  // Sets the stage for which the round's next one waits.
  void add_products(int32_t round, int32_t& before) {
    for (StepStrips& strips : rounds_[index(round)].strips) {
      add(EntryKind::kMultiplyStrips, round, StepThread::kCompute, -1);
      stages_.back().seconds = std::move(strips.multiply);
      add(EntryKind::kAllToAll, round, StepThread::kScatter, last());
      stages_.back().messages = std::move(strips.scatter);
      before = last();
    }
  }

 private:
  void add(EntryKind kind, int32_t round, StepThread thread, int32_t waits) {
    stages_.push_back({.kind = kind, .round = round, .thread = thread});
    if (waits >= 0) stages_.back().waits.push_back(waits);
  }
  int32_t last() const { return static_cast<int32_t>(stages_.size()) - 1; }

  std::vector<StepStage>& stages_;
  std::vector<StepRound>& rounds_;
  std::vector<std::vector<int32_t>> gathers_;  // by round and exchange
};

}  // namespace

std::vector<StepStage> step_stages(std::vector<StepRound> rounds) {
  std::vector<StepStage> stages;
  // The last stage of each round so far, for which its next one waits.
  std::vector<int32_t> last(rounds.size(), -1);
  StripStages strips(stages, rounds);
  for (const ExchangeStage& planned :
       exchange_order(static_cast<int32_t>(rounds.size()))) {
    StepStage stage{.kind = planned.kind,
                    .round = planned.round,
                    .thread = thread_of(planned)};
    StepRound& round = rounds[index(planned.round)];
    int32_t& before = last[index(planned.round)];
    if (stage.thread == StepThread::kGather)
      strips.add_gathers(planned.round, before);
    if (stage.kind == EntryKind::kTransform) strips.add_sums(planned.round);
    if (stage.kind == EntryKind::kTransform)
      stage.seconds = std::move(round.transform);
    if (stage.thread == StepThread::kGather)
      stage.messages = std::move(round.gather);
    if (stage.thread == StepThread::kScatter)
      stage.messages = std::move(round.scatter);
    if (before >= 0) stage.waits.push_back(before);
    before = static_cast<int32_t>(stages.size());
    stages.push_back(std::move(stage));
    if (planned.purpose == Purpose::kScatterMatrices)
      strips.add_products(planned.round, before);
  }
  return stages;
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

}  // namespace canzona

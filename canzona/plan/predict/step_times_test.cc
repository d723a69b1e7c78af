#include "canzona/plan/predict/step_times.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::step_times_test {
namespace {

using ::testing::ElementsAre;

StepMessage message(int32_t from, int32_t to, double seconds,
                    double latency = 0, bool near = true) {
  return {from, to, near, seconds, latency};
}

std::vector<double> seconds_of(std::vector<StepRound> rounds,
                               int32_t num_ranks = 2) {
  return step_times(step_stages(std::move(rounds)), num_ranks).rank_seconds;
}

// Rank 0 sends for 2 s and 1 s of latency, rank 1 computes for 5, and sends
// back.
TEST(StepTimes, FollowOneMatrixToItsOwnerAndBack) {
  const StepRound round{.transform = {0, 5},
                        .gather = {message(0, 1, 2, 1)},
                        .scatter = {message(1, 0, 4, 1)}};
  EXPECT_THAT(seconds_of({round}), ElementsAre(13, 13));
}

TEST(StepTimes, OfNothingAreZero) {
  EXPECT_THAT(seconds_of({}), ElementsAre(0, 0));
  EXPECT_THAT(seconds_of({StepRound{.transform = {0, 3}}}), ElementsAre(0, 3));
}

// Each rank has its work in another round: nobody waits for a round's slowest.
TEST(StepTimes, RanksDoNotMeetBetweenRounds) {
  const StepRound first{.transform = {10, 0}};
  const StepRound second{.transform = {0, 10}};
  EXPECT_THAT(seconds_of({first, second}), ElementsAre(10, 10));
}

// An exchange is over for a rank when its own messages have come, and a rank
// that has none goes on.
TEST(StepTimes, ExchangesEndRankByRank) {
  const StepRound round{
      .transform = {1, 1, 1},
      .gather = {message(0, 1, 2), message(1, 0, 7)},
  };
  EXPECT_THAT(seconds_of({round}, 3), ElementsAre(8, 8, 1));
}

// Rank 2 receives 3 s from each of the others; they send at the same time.
TEST(StepTimes, MessagesShareAPort) {
  const StepRound round{.transform = {0, 0, 1},
                        .gather = {message(0, 2, 3), message(1, 2, 3)}};
  EXPECT_THAT(seconds_of({round}, 3), ElementsAre(3, 6, 7));
}

// A message holds its ports for its bytes alone: the second is not late by the
// first one's latency.
TEST(StepTimes, LatencyHoldsNoPort) {
  const StepRound round{
      .transform = {0, 0, 1},
      .gather = {message(0, 2, 3, 100), message(1, 2, 3, 100)}};
  EXPECT_THAT(seconds_of({round}, 3), ElementsAre(103, 106, 107));
}

// Messages inside a node and between nodes pass beside each other.
TEST(StepTimes, PortsToOtherNodesAreOthers) {
  const StepRound round{
      .transform = {0, 0, 1},
      .gather = {message(0, 2, 3), message(1, 2, 3, 0, /*near=*/false)}};
  EXPECT_THAT(seconds_of({round}, 3), ElementsAre(3, 3, 4));
}

// Gathers of rounds 0, 1, 2 (2 s each) leave at once, one after the other: the
// transforms of 1 s wait for them. That of round 3 leaves after transform 0.
TEST(StepTimes, TwoGathersRunAhead) {
  const StepRound round{.transform = {0, 1}, .gather = {message(0, 1, 2)}};
  EXPECT_THAT(seconds_of({round, round, round, round}), ElementsAre(8, 9));
  StepRound slow = round;
  slow.transform = {0, 10};
  // Rank 1 is ready for the gather of round 3 when transform 0 ends, at 12.
  EXPECT_THAT(seconds_of({slow, round, round, round}), ElementsAre(14, 15));
}

// The updates of round 0 reach rank 0 at 101. Its slot is needed for round 4,
// which rank 0 prepares after that.
TEST(StepTimes, ASlotIsFreeWhenItsRoundIsApplied) {
  const StepRound slow{.transform = {0, 1}, .scatter = {message(1, 0, 100)}};
  const StepRound empty{.transform = {0, 0}};
  const StepRound last{.transform = {0, 5}, .gather = {message(0, 1, 1)}};
  EXPECT_THAT(seconds_of({slow, empty, empty, empty, last}),
              ElementsAre(102, 107));
  EXPECT_THAT(seconds_of({slow, empty, empty, last}), ElementsAre(101, 101));
}

TEST(StepTimes, TellWhenRoundsAreApplied) {
  const StepRound round{.transform = {0, 1}, .scatter = {message(1, 0, 2)}};
  const HomeStepTimes times = step_times(step_stages({round, round}), 2);
  EXPECT_THAT(times.applied, ElementsAre(ElementsAre(3, 3), ElementsAre(5, 5)));
}

// Other stages can be added, such as a sum on a third rank that a transform
// waits for.
TEST(StepTimes, TakeAnyListOfStages) {
  const std::vector<StepStage> stages{
      {.kind = EntryKind::kAllToAll,
       .thread = StepThread::kGather,
       .messages = {message(0, 1, 2)}},
      {.kind = EntryKind::kTransform, .seconds = {4, 0, 0}},
      {.kind = EntryKind::kAllToAll,
       .thread = StepThread::kScatter,
       .messages = {message(0, 2, 1, 0.5)},
       .waits = {1}},
      {.kind = EntryKind::kTransform, .seconds = {0, 3, 3}, .waits = {0, 2}}};
  EXPECT_THAT(step_times(stages, 3).rank_seconds, ElementsAre(5.5, 5, 8.5));
}

std::vector<StepMessage>& of(StepTeam& team, Purpose purpose) {
  return team.exchanges[static_cast<size_t>(purpose) -
                        static_cast<size_t>(Purpose::kTeamNorms)];
}

// Norms are there at 0.5, strips are summed at 3.5, pieces of the sum are there
// at 4.5 and at the head at 5, which iterates until 10. Its factor is with rank
// 1 at 12; until 8.5 that has computed a matrix of its own.
StepRound one_team() {
  StepTeam team{.members = {0, 1}, .sum = 3, .multiply = 2, .iterate = 5};
  of(team, Purpose::kTeamNorms) = {message(0, 1, 0.5), message(1, 0, 0.5)};
  of(team, Purpose::kTeamSums) = {message(0, 1, 1), message(1, 0, 1)};
  of(team, Purpose::kTeamTotals) = {message(1, 0, 0.5)};
  of(team, Purpose::kTeamFactors) = {message(0, 1, 1.5, 0.5)};
  return {.transform = {0, 4}, .teams = {team}};
}

TEST(StepTimes, FollowATeam) {
  EXPECT_THAT(seconds_of({one_team()}), ElementsAre(12, 14));
  // A third rank is no member: it goes on beside them.
  StepRound three = one_team();
  three.transform = {0, 4, 7};
  EXPECT_THAT(seconds_of({three}, 3), ElementsAre(12, 14, 7));
  // The head goes on with its own matrix when it has iterated, which rank 1
  // does not wait for.
  StepRound busy = one_team();
  busy.transform = {10, 4};
  EXPECT_THAT(seconds_of({busy}), ElementsAre(22, 14));
}

// A second segment begins when strips are multiplied: at 12 on the head, at 14
// on rank 1, whose sum is ready at 17. Pieces: 18, at the head: 18.5, factor at
// 23.5 and 25.5.
TEST(StepTimes, FollowATeamThroughItsSegments) {
  StepRound round = one_team();
  round.teams[0].segments = 2;
  round.transform = {0, 4, 0, 0};
  EXPECT_THAT(seconds_of({round}), ElementsAre(25.5, 27.5));
  round.transform = {0, 0, 0, 4};
  EXPECT_THAT(seconds_of({round}), ElementsAre(25.5, 27.5));
  round.transform = {0, 0, 0, 10};
  EXPECT_THAT(seconds_of({round}), ElementsAre(25.5, 30));
}

// Whole matrices fill the time in which members wait for the head.
TEST(StepTimes, TwoTeamsIterateAtOnce) {
  const StepTeam first{
      .members = {0, 1}, .sum = 1, .multiply = 1, .iterate = 4};
  StepTeam second = first;
  second.members = {1, 0};
  const StepRound round{.transform = {0, 0}, .teams = {first, second}};
  EXPECT_THAT(seconds_of({round}), ElementsAre(8, 8));
  second.members = {0, 1};
  EXPECT_THAT(seconds_of({{.transform = {0, 8}, .teams = {first, second}}}),
              ElementsAre(12, 12));
}

// The room of a round's teams is free when the last exchange of the former one
// is over, at 100.
TEST(StepTimes, TeamsOfTheNextRoundWaitForTheirRoom) {
  StepTeam slow{.members = {0, 1}, .sum = 1};
  of(slow, Purpose::kTeamFactors) = {message(0, 1, 99)};
  const StepTeam quick{.members = {0, 1}, .sum = 1};
  EXPECT_THAT(seconds_of({{.transform = {0, 0}, .teams = {slow}},
                          {.transform = {0, 0}, .teams = {quick}}}),
              ElementsAre(101, 101));
}

TEST(StepTimesDeathTest, WaitsPointBack) {
  const std::vector<StepStage> stages{
      {.kind = EntryKind::kTransform, .waits = {0}}};
  EXPECT_ANY_THROW(step_times(stages, 1));
}

// Draws random homes and checks properties that hold for all of them.

std::vector<StepMessage> random_messages(Random& random, int32_t num_ranks) {
  std::vector<StepMessage> out;
  for (int32_t from = 0; from < num_ranks; ++from)
    for (int32_t to = 0; to < num_ranks; ++to)
      if (from != to && random.coin())
        out.push_back(
            message(from, to, static_cast<double>(random.between(0, 9)),
                    static_cast<double>(random.between(0, 2)), random.coin()));
  return out;
}

std::vector<StepRound> random_rounds(Random& random, int32_t num_ranks,
                                     int64_t most_rounds) {
  std::vector<StepRound> rounds(
      static_cast<size_t>(random.between(1, most_rounds)));
  for (StepRound& round : rounds) {
    for (int32_t r = 0; r < num_ranks; ++r)
      round.transform.push_back(static_cast<double>(random.between(0, 20)));
    round.gather = random_messages(random, num_ranks);
    round.scatter = random_messages(random, num_ranks);
  }
  return rounds;
}

StepTeam random_team(Random& random, int32_t num_ranks) {
  StepTeam team;
  const auto first = static_cast<int32_t>(random.between(0, num_ranks - 1));
  team.members = {first, (first + 1) % num_ranks};
  team.segments = static_cast<int32_t>(random.between(1, 3));
  for (double* seconds : {&team.sum, &team.multiply, &team.iterate})
    *seconds = static_cast<double>(random.between(0, 9));
  for (auto& messages : team.exchanges)
    for (const StepMessage& m : random_messages(random, 2))
      messages.push_back(message(team.members[static_cast<size_t>(m.from)],
                                 team.members[static_cast<size_t>(m.to)],
                                 m.port_seconds, m.latency_seconds));
  return team;
}

// With a team in some rounds, and zeros for its further segments.
std::vector<StepRound> random_team_rounds(Random& random, int32_t num_ranks,
                                          int64_t most_rounds) {
  std::vector<StepRound> rounds = random_rounds(random, num_ranks, most_rounds);
  for (StepRound& round : rounds) {
    int32_t segments = 1;
    for (int64_t i = random.between(0, 2); i > 0; --i) {
      round.teams.push_back(random_team(random, num_ranks));
      segments = std::max(segments, round.teams.back().segments);
    }
    round.transform.resize(static_cast<size_t>(segments * num_ranks), 0);
  }
  return rounds;
}

double slowest(const std::vector<StepRound>& rounds, int32_t num_ranks) {
  return std::ranges::max(seconds_of(rounds, num_ranks));
}

std::vector<double> compute_of(const std::vector<StepRound>& rounds,
                               int32_t num_ranks) {
  std::vector<double> sums(static_cast<size_t>(num_ranks), 0);
  for (const StepRound& round : rounds) {
    for (size_t i = 0; i < round.transform.size(); ++i)
      sums[i % sums.size()] += round.transform[i];
    for (const StepTeam& team : round.teams) {
      for (const int32_t r : team.members)
        sums[static_cast<size_t>(r)] +=
            team.segments * (team.sum + team.multiply);
      sums[static_cast<size_t>(team.members[0])] +=
          team.segments * team.iterate;
    }
  }
  return sums;
}

// Every message of the rounds, with how often it is sent.
template <class Visit>
void each_message(std::vector<StepRound>& rounds, const Visit& visit) {
  for (StepRound& round : rounds) {
    for (auto* messages : {&round.gather, &round.scatter})
      for (StepMessage& m : *messages) visit(m, 1);
    for (StepTeam& team : round.teams)
      for (auto& messages : team.exchanges)
        for (StepMessage& m : messages)
          visit(m, &messages == &team.exchanges[0] ? 2 : team.segments);
  }
}

double busiest_port(std::vector<StepRound> rounds) {
  std::map<std::tuple<int32_t, bool, bool>, double> busy;
  each_message(rounds, [&](const StepMessage& m, int32_t times) {
    busy[{m.from, m.near, true}] += times * m.port_seconds;
    busy[{m.to, m.near, false}] += times * m.port_seconds;
  });
  double most = 0;
  for (const auto& [port, seconds] : busy) most = std::max(most, seconds);
  return most;
}

std::vector<StepRound> with_links(std::vector<StepRound> rounds, double scale) {
  each_message(rounds, [&](StepMessage& m, int32_t) {
    m.port_seconds *= scale;
    m.latency_seconds *= scale;
  });
  return rounds;
}

TEST(StepTimes, AreNeverBelowComputeOrPorts) {
  Random random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const auto num_ranks = static_cast<int32_t>(random.between(2, 6));
    const auto rounds = random_team_rounds(random, num_ranks, 7);
    const std::vector<double> compute = compute_of(rounds, num_ranks);
    const std::vector<double> times = seconds_of(rounds, num_ranks);
    for (size_t r = 0; r < times.size(); ++r) EXPECT_GE(times[r], compute[r]);
    EXPECT_GE(std::ranges::max(times), busiest_port(rounds));
  }
}

// Up to three rounds are sent off before anybody computes.
TEST(StepTimes, OnInfiniteLinksComputeRemains) {
  Random random(2);
  for (int trial = 0; trial < 500; ++trial) {
    const auto num_ranks = static_cast<int32_t>(random.between(1, 6));
    const auto rounds = with_links(random_rounds(random, num_ranks, 3), 0);
    EXPECT_EQ(slowest(rounds, num_ranks),
              std::ranges::max(compute_of(rounds, num_ranks)));
  }
}

// A team that is alone with its home: the head is never idle.
TEST(StepTimes, OnInfiniteLinksAHeadComputesAllTheTime) {
  Random random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto num_ranks = static_cast<int32_t>(random.between(2, 6));
    StepRound round{
        .transform = std::vector<double>(static_cast<size_t>(3 * num_ranks), 0),
        .teams = {random_team(random, num_ranks)}};
    round.teams[0].segments = 3;
    const auto rounds = with_links({round}, 0);
    EXPECT_EQ(slowest(rounds, num_ranks),
              std::ranges::max(compute_of(rounds, num_ranks)));
  }
}

TEST(StepTimes, FasterLinksAreNeverSlower) {
  Random random(3);
  for (int trial = 0; trial < 500; ++trial) {
    const auto num_ranks = static_cast<int32_t>(random.between(2, 6));
    const auto rounds = random_team_rounds(random, num_ranks, 8);
    std::vector<double> last = seconds_of(rounds, num_ranks);
    for (const double scale : {0.9, 0.5, 0.1, 0.0}) {
      const std::vector<double> now =
          seconds_of(with_links(rounds, scale), num_ranks);
      for (size_t r = 0; r < now.size(); ++r)
        EXPECT_LE(now[r], last[r] + 1e-9) << "trial " << trial;
      last = now;
    }
  }
}

// A step never takes longer than all its stages executed one after the other.
TEST(StepTimes, AreNeverLongerThanEverythingInTurn) {
  Random random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const auto num_ranks = static_cast<int32_t>(random.between(2, 6));
    auto rounds = random_team_rounds(random, num_ranks, 8);
    const std::vector<double> compute = compute_of(rounds, num_ranks);
    double all = std::accumulate(compute.begin(), compute.end(), 0.0);
    each_message(rounds, [&](const StepMessage& m, int32_t times) {
      all += times * (m.port_seconds + m.latency_seconds);
    });
    EXPECT_LE(slowest(rounds, num_ranks), all);
  }
}

}  // namespace
}  // namespace canzona::plan::step_times_test

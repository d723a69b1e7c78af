// The predicted step of a home has the stages and bytes that its ranks carry
// out, in the same order.
#include "canzona/plan/predict/step_times.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/testing/test_teams.h"

namespace canzona::plan::home_step_test {
namespace {

// A stage as one rank sees it.
struct Seen {
  EntryKind kind;
  int32_t round;
  int64_t sent;  // bytes of a message, of an exchange
  friend bool operator==(const Seen&, const Seen&) = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  return out << static_cast<int>(seen.kind) << " of round " << seen.round
             << " sends " << seen.sent;
}

bool is_exchange(EntryKind kind) { return kind == EntryKind::kAllToAll; }

// Exchanges of nothing do not count.
void add_seen(const Seen& seen, std::vector<Seen>& list) {
  if (!is_exchange(seen.kind) || seen.sent > 0) list.push_back(seen);
}

std::vector<Seen> carried_out(const PlanPart& part, int32_t rank) {
  const Coordinates at = in_grid(part, rank);
  const RankLayout layout = lay_out_rank(part, at);
  const Kept kept = kept_by(part, at, layout);
  const std::vector<Round> rounds = make_rounds(part, at, kept, 1);
  const RankEntries entries(part, rank, layout, kept, rounds);
  std::vector<Seen> list;
  bool is_first = false;  // the last one in the list: of the first table
  for (const ScheduleEntry& e : entries.step()) {
    if (e.kind == EntryKind::kUpdateElements) continue;
    const int64_t sent = is_exchange(e.kind) ? e.bytes.sent() : 0;
    const bool is_of_round = is_exchange(e.kind) && !is_of_team(e.purpose);
    // The exchanges of matrices that tp cuts and of others are one stage.
    if (is_of_round && e.table == 1 && is_first)
      list.back().sent += sent;
    else
      add_seen({e.kind, e.round, sent}, list);
    is_first = is_of_round && e.table == 0 && sent > 0;
  }
  return list;
}

// One byte takes a second on these links.
std::vector<Seen> predicted(const PlanPart& part, int32_t rank) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  const Coordinates at = in_grid(part, rank);
  std::vector<HomeMatrix> matrices;
  for (size_t m = 0; m < part.matrices.size(); ++m)
    if (part.home[static_cast<size_t>(part.matrices[m].tensor)] == at.home)
      matrices.push_back(
          {static_cast<int32_t>(m), part.micro_group[m], part.owners[m]});
  std::ranges::stable_sort(matrices, {}, &HomeMatrix::round);
  const std::vector<int32_t> nodes(static_cast<size_t>(part.grid.tp), 0);
  std::vector<Seen> list;
  for (const StepStage& stage :
       HomeStep(part, *rule, costs, matrices, nodes).stages(0)) {
    if (!stage.ranks.empty() &&
        std::ranges::find(stage.ranks, at.t) == stage.ranks.end())
      continue;
    double sent = 0;
    for (const StepMessage& m : stage.messages)
      if (m.from == at.t) sent += m.port_seconds;
    add_seen({stage.kind, stage.round, static_cast<int64_t>(sent)}, list);
  }
  return list;
}

TEST(HomeStep, HasTheStagesThatRanksCarryOut) {
  for (const char* mesh : {"tp=4", "tp=8", "dp=2,tp=4"})
    for (const int32_t layers : {1, 3}) {
      Plan plan = plan_of(wide_and_small(layers), mesh, with_teams(),
                          rule_with_strips());
      EXPECT_GT(count_teams(plan), 0u) << mesh << layers;
      PlanPart& part = plan.parts[0];
      part.options.links = {1, 1, 0, false};
      for (int32_t rank = 0; rank < part.grid.world(); ++rank)
        EXPECT_EQ(predicted(part, rank), carried_out(part, rank))
            << mesh << ", rank " << rank;
    }
}

// The same of owners with helpers, in the step of a refresh.
TEST(HomeStep, HasTheStagesOfHelpers) {
  for (const char* mesh : {"tp=4", "dp=2,tp=4"}) {
    Plan plan = plan_of(two_squares(), mesh, with_teams(), soap_with_helpers());
    EXPECT_GT(count_teams(plan), 0u) << mesh;
    PlanPart& part = plan.parts[0];
    part.options.links = {1, 1, 0, false};
    for (int32_t rank = 0; rank < part.grid.world(); ++rank)
      EXPECT_EQ(predicted(part, rank), carried_out(part, rank))
          << mesh << ", rank " << rank;
  }
}

// The work of a team is that of its members and its head, whatever the
// segments.
TEST(HomeStep, HasTheWorkOfTeams) {
  const Plan plan =
      plan_of(wide_and_small(1), "tp=4", with_teams(), rule_with_strips());
  const PlanPart& part = plan.parts[0];
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  const std::vector<int32_t> nodes(4, 0);
  const std::vector<int32_t> owners{2, 0, 3, 1};
  const HomeMatrix shared{0, 0, owners};
  std::vector<double> seconds(4, 0);
  for (const StepStage& stage :
       HomeStep(part, *rule, costs, {&shared, 1}, nodes).stages(0))
    for (size_t r = 0; r < stage.seconds.size(); ++r)
      if (std::ranges::find(stage.ranks, static_cast<int32_t>(r)) !=
          stage.ranks.end())
        seconds[r] += stage.seconds[r];
  const Matrix& matrix = part.matrices[0];
  const TeamSize team =
      costs.team({matrix.rows, matrix.cols}, part.costs[0], 4);
  for (size_t r = 0; r < seconds.size(); ++r)
    EXPECT_NEAR(seconds[r] / part.cost_basis.seconds_per_tick,
                static_cast<double>(r == 2 ? team.at_head() : team.member),
                1e-6 * static_cast<double>(team.member));
}

// A helper takes its factor's decomposition off a refresh, and nothing off
// other steps.
TEST(HomeStep, HasTheWorkOfHelpers) {
  const Plan plan =
      plan_of(two_squares(), "tp=4", with_teams(), soap_with_helpers());
  const PlanPart& part = plan.parts[0];
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  const std::vector<int32_t> nodes(4, 0);
  const std::vector<int32_t> owners{2, 0};
  const HomeMatrix shared{0, 0, owners};
  const StripFacts& facts = costs.strips({128, 128});
  const auto every = static_cast<double>(part.costs[0].every_step.value());
  const auto refresh = static_cast<double>(part.costs[0].refresh.value());
  const auto help = static_cast<double>(facts.helper_refresh.value());
  EXPECT_GT(help, 0.3 * refresh);
  for (const int32_t phase : {-1, 0}) {
    std::vector<double> seconds(4, 0);
    for (const StepStage& stage :
         HomeStep(part, *rule, costs, {&shared, 1}, nodes).stages(phase))
      for (const int32_t r : stage.ranks)
        if (!stage.seconds.empty())
          seconds[static_cast<size_t>(r)] +=
              stage.seconds[static_cast<size_t>(r)];
    for (double& each : seconds) each /= part.cost_basis.seconds_per_tick;
    const bool refreshes = phase == 0;
    EXPECT_NEAR(seconds[2], every + (refreshes ? refresh - help : 0), 2);
    EXPECT_NEAR(seconds[0], refreshes ? help : 0, 2);
    EXPECT_EQ(seconds[1] + seconds[3], 0);
  }
}

}  // namespace
}  // namespace canzona::plan::home_step_test

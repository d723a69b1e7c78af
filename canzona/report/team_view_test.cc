// Teams in the views.
#include "canzona/report/team_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/testing/test_teams.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/explain.h"
#include "canzona/report/models_view.h"
#include "canzona/report/plan_view.h"

namespace canzona::report::team_view_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ReportPlan shown(int32_t teams, const RuleChoice& rule = rule_with_strips(),
                 const Model& model = wide_and_small(1)) {
  ReportPlan out;
  out.plan = plan_of(model, "tp=4", with_teams(teams), rule);
  out.ranks = predict(out.plan);
  out.balance = measure_balance(out.plan);
  return out;
}

Json parsed(const std::string& text) { return parse_json(text, {}); }

TEST(TeamView, SaysWhichMatricesAreShared) {
  EXPECT_EQ(describe_teams(shown(kTeamsOff).plan), "off");
  EXPECT_EQ(describe_teams(shown(kTeamsAuto).plan),
            "2 of 3 matrices are shared: 2 by 4 ranks");
  EXPECT_THAT(describe_teams(shown(kTeamsAuto, rule_with_strips(1)).plan),
              HasSubstr("none: rule muon cannot share any matrix"));
  EXPECT_THAT(print_text(plan_view(shown(kTeamsAuto)), Ink()),
              AllOf(HasSubstr("2 by 4 ranks"), HasSubstr("with teams"),
                    HasSubstr("team sums"), HasSubstr("team factors")));
  EXPECT_THAT(print_text(plan_view(shown(kTeamsOff)), Ink()),
              Not(HasSubstr("team")));
}

TEST(TeamView, AMatrixIsExplainedWithItsMembers) {
  const ReportPlan plan = shown(kTeamsAuto);
  const Found found = find_by_name(plan.plan, "layers.0.tall");
  EXPECT_THAT(
      print_text(explain_matrices(plan, found), Ink()),
      AllOf(HasSubstr(", head"), HasSubstr("0 to 1 of 8"),
            HasSubstr("6 to 7 of 8"), HasSubstr("A team of 4: one rank")));
  const Json json =
      parsed(to_json(explain_matrices(plan, found)))["matrices"][0];
  const Json& members = json["team"]["members"];
  ASSERT_EQ(members.size(), 4u);
  EXPECT_EQ(json["head"], members[0]["rank"]);
  int64_t rows = 0, gathered = 0;
  for (const Json& member : members) {
    EXPECT_EQ(member["first_row"], rows);
    rows += member["num_rows"].get<int64_t>();
    gathered += member["gather_bytes"].get<int64_t>();
  }
  EXPECT_EQ(rows, 2048);
  EXPECT_EQ(json["moves"]["gather_bytes"], gathered);
  int64_t pieces = 0;
  for (const Json& piece : json["moves"]["pieces"])
    pieces += piece["gather_bytes"].get<int64_t>();
  EXPECT_EQ(pieces, gathered);
}

// A tall matrix of 32 blocks and a wide one of 16, of which ranks own some.
TEST(TeamView, OwnersOfBlocksAreTold) {
  const RuleChoice in_blocks{"shampoo", {{"max_preconditioner_dim", "64"}}};
  const ReportPlan plan = shown(kTeamsAuto, in_blocks);
  EXPECT_EQ(describe_teams(plan.plan),
            "2 of 3 matrices are shared, block by block: 2 by 4 ranks");
  const Found found = find_by_name(plan.plan, "layers.0.tall");
  EXPECT_THAT(print_text(explain_matrices(plan, found), Ink()),
              AllOf(HasSubstr("of 32"), HasSubstr("Its 32 blocks are"),
                    Not(HasSubstr("head"))));
  const Json json =
      parsed(to_json(explain_matrices(plan, found)))["matrices"][0];
  EXPECT_FALSE(json.contains("head"));
  EXPECT_EQ(json["owners"].size(), 4u);
  EXPECT_EQ(json["team"]["blocks"], 32);
  int64_t blocks = 0, gathered = 0;
  for (const Json& member : json["team"]["members"]) {
    blocks += static_cast<int64_t>(member["blocks"].size());
    gathered += member["gather_bytes"].get<int64_t>();
  }
  EXPECT_EQ(blocks, 32);
  EXPECT_EQ(json["moves"]["gather_bytes"], gathered);
  EXPECT_THAT(print_text(explain_rank(plan, 0), Ink()),
              HasSubstr("of 32 blocks"));
  EXPECT_THAT(print_text(audit_view(plan.plan), Ink()), HasSubstr("blocks"));
  EXPECT_THAT(plan_html(plan), HasSubstr("of 32 blocks"));
}

// Two matrices with an owner and a helper each.
TEST(TeamView, HelpersAreTold) {
  const ReportPlan plan = shown(kTeamsAuto, soap_with_helpers(), two_squares());
  EXPECT_EQ(describe_teams(plan.plan),
            "2 of 2 matrices are shared: 2 by 2 ranks");
  const Found found = find_by_name(plan.plan, "square0");
  EXPECT_THAT(
      print_text(explain_matrices(plan, found), Ink()),
      AllOf(HasSubstr(", helper"), HasSubstr("triangle in"),
            HasSubstr("A helper: in a refresh one rank"),
            HasSubstr("\n  owner       rank "),
            HasSubstr("\n  helper      rank "), Not(HasSubstr("head"))));
  const Json json =
      parsed(to_json(explain_matrices(plan, found)))["matrices"][0];
  EXPECT_EQ(json["team"]["helper"], true);
  EXPECT_EQ(json["team"]["helped_side"], 128);
  const Json& owner = json["team"]["members"][0];
  const Json& helper = json["team"]["members"][1];
  EXPECT_EQ(owner["rank"], json["head"]);
  EXPECT_EQ(json["owners"], Json({owner["rank"], helper["rank"]}));
  EXPECT_EQ(json["helpers"], Json::array({helper["rank"]}));
  EXPECT_EQ(json["team"]["path"], owner["work"]);
  EXPECT_GE(json["team"]["refresh_path"], owner["refresh"]);
  EXPECT_LT(json["team"]["refresh_path"], json["cost_refresh"]);
  EXPECT_EQ(owner["num_rows"], 128);
  EXPECT_EQ(helper["num_rows"], 0);
  EXPECT_EQ(helper["work"], 0);
  EXPECT_GT(helper["refresh"].get<int64_t>(), 0);
  EXPECT_EQ(owner["sum_bytes_sent"], helper["sum_bytes_received"]);
  EXPECT_EQ(owner["factor_bytes_received"], helper["factor_bytes_sent"]);
  EXPECT_EQ(json["moves"]["gather_bytes"], owner["gather_bytes"]);
  std::string all;
  for (int32_t r = 0; r < 4; ++r)
    all += print_text(explain_rank(plan, r), Ink());
  EXPECT_THAT(all, AllOf(HasSubstr("owner, with a helper"),
                         HasSubstr("helper in refreshes")));
  EXPECT_THAT(print_text(audit_view(plan.plan), Ink()), HasSubstr(", helper "));
  EXPECT_THAT(plan_html(plan), HasSubstr("owner, with a helper"));
}

// The owner of an owner and its helper is named first, though its rank is the
// larger one.
TEST(TeamView, AnOwnerComesBeforeItsHelper) {
  ReportPlan plan = shown(kTeamsAuto, soap_with_helpers(), two_squares());
  replace_owners(plan.plan, 0, {2, 1});
  replace_owners(plan.plan, 1, {3, 0});
  plan.ranks = predict(plan.plan);
  const OwnerStory story = tell_owner(plan, 0);
  EXPECT_EQ(story.owners, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(story.num_helpers, 1u);
  EXPECT_EQ(story.head, 2);
  EXPECT_THAT(
      print_text(explain_matrices(plan, find_by_name(plan.plan, "square0")),
                 Ink()),
      AllOf(HasSubstr("\n  owner       rank 2 (tp 2)\n"),
            HasSubstr("\n  helper      rank 1 (tp 1)\n")));
}

// An owner and its helper have no norms, no totals and no pieces to pass on.
TEST(TeamView, ARankLeavesOutStagesThatDoNothing) {
  const ReportPlan plan = shown(kTeamsAuto, soap_with_helpers(), two_squares());
  for (int32_t r = 0; r < 4; ++r) {
    const std::string text = print_text(explain_rank(plan, r), Ink());
    EXPECT_THAT(
        text,
        AllOf(HasSubstr("iterate"), HasSubstr("a step with a refresh"),
              HasSubstr("without a refresh"), Not(HasSubstr("scale strips"))));
    const Json json = parsed(to_json(explain_rank(plan, r)));
    size_t exchanges = 0, all = 0;
    for (const Json& entry : json["iteration"]) {
      const bool in_team = entry["what"].get<std::string>().find(", helper ") !=
                           std::string::npos;
      if (!in_team || entry["operation"] != "all-to-all") continue;
      ++all;
      exchanges += !entry.contains("does_nothing");
    }
    EXPECT_EQ(exchanges, 4u);  // of two matrices: a triangle and a factor each
    EXPECT_GT(all, exchanges);
    size_t rows = 0;
    for (const std::string& line : split_text(text, '\n'))
      rows += line.find("all-to-all ") != std::string::npos &&
              line.find(", helper ") != std::string::npos;
    EXPECT_EQ(rows, exchanges);
  }
}

TEST(TeamView, ARankSaysWhatItHasOfATeam) {
  const ReportPlan plan = shown(kTeamsAuto);
  std::string all;
  for (int32_t r = 0; r < 4; ++r)
    all += print_text(explain_rank(plan, r), Ink());
  EXPECT_THAT(all, AllOf(HasSubstr("head of 4"), HasSubstr("1 of 4")));
  const Json json = parsed(to_json(explain_rank(plan, 0)));
  double load = 0;
  for (const Json& one : json["matrices"]) load += one["load"].get<double>();
  EXPECT_EQ(load, static_cast<double>(plan.ranks[0].every_step.value()));
}

TEST(TeamView, TheAuditSaysWhyOrWhyNot) {
  EXPECT_THAT(print_text(audit_view(shown(kTeamsAuto).plan), Ink()),
              AllOf(HasSubstr("head "), HasSubstr("2 strips each"),
                    HasSubstr("A team of 4"), HasSubstr("one strip")));
  const Json rows =
      parsed(to_json(audit_view(shown(kTeamsAuto).plan)))["audit"];
  EXPECT_EQ(rows[1]["team"]["members"].size(), 4u);
  EXPECT_EQ(rows[2]["team_reason"], "No team: this shape has one strip.");
}

// The cost of a matrix alone covers a period, as the makespan does, which
// includes refreshes.
TEST(TeamView, TheAuditCountsRefreshes) {
  std::vector<Tensor> tensors = two_squares().tensors;
  tensors.push_back(matrix_tensor("small", 16, 16, Cut::kNone));
  const ReportPlan plan =
      shown(kTeamsAuto, soap_with_helpers(), model_of(std::move(tensors)));
  const MatrixCost& cost = plan.plan.costs[2];
  ASSERT_GT(cost.refresh, Ticks(0));
  const auto whole =
      static_cast<double>(2 * cost.every_step.value() + cost.refresh.value());
  EXPECT_THAT(TeamReasons(plan.plan).of(2),
              HasSubstr(cat("No team: one rank takes ",
                            cost_text(plan.plan.cost_basis, whole),
                            " in a period of 2 steps, ")));
}

// Plans without teams say why, and do not blame a cap that is not there.
TEST(TeamView, AMemoryCapMayBeTheReason) {
  Plan plan = shown(kTeamsOff).plan;
  plan.options.teams = kTeamsAuto;
  const char* cap = ", or would not fit the memory cap";
  EXPECT_THAT(describe_teams(plan),
              AllOf(HasSubstr("predicted step by 3 %"), Not(HasSubstr(cap))));
  plan.options.memory_cap_bytes = 1 << 20;
  EXPECT_THAT(describe_teams(plan), HasSubstr(cap));
  EXPECT_THAT(TeamReasons(plan).of(0), HasSubstr(cap));
}

TEST(TeamView, ComparisonsCountTeamsBySize) {
  const Comparison all{
      "by hand", parse_mesh("tp=4"), {{"balanced", shown(kTeamsAuto), ""}}};
  EXPECT_THAT(print_text(compare_view(all), Ink()), HasSubstr("2 by 4 ranks"));
  const Json json = parsed(to_json(compare_view(all)))["strategies"][0];
  EXPECT_EQ(json["teams"], (Json{{"2", 0}, {"4", 2}, {"8", 0}}));
  const double bound = json["all_ranks"]["team_bound_over_mean"].get<double>();
  EXPECT_GE(bound, 1);
  EXPECT_LE(bound, json["all_ranks"]["makespan_over_mean"].get<double>());
  EXPECT_LT(bound, json["all_ranks"]["bound_over_mean"].get<double>());
}

TEST(TeamView, TheReportHasATableOfHelpers) {
  const ReportPlan plan = shown(kTeamsAuto, soap_with_helpers(), two_squares());
  const Json row = parsed(to_json(plan_view(plan)))["team_shapes"][0];
  const TeamStory team = *team_of(plan.plan.parts.front(), 0);
  EXPECT_EQ(row["helper"], true);
  EXPECT_EQ(row["helped_side"], 128);
  EXPECT_EQ(row["owner_refresh_ticks"], team.members[0].refresh.value());
  EXPECT_EQ(row["helper_refresh_ticks"], team.members[1].refresh.value());
  EXPECT_GT(row["helper_refresh_ticks"].get<int64_t>(), 0);
  EXPECT_EQ(row["helper_receives_triangle"], 4 * 128 * 129 / 2);
  EXPECT_GT(row["owner_receives_factor"].get<int64_t>(), 4 * 128 * 128);
  EXPECT_THAT(plan_html(plan), HasSubstr("helper decomposes"));
}

TEST(TeamView, TheReportHasATableOfTeams) {
  const Json json = parsed(to_json(plan_view(shown(kTeamsAuto))));
  EXPECT_THAT(json["teams_text"].get<std::string>(), HasSubstr("by 4 ranks"));
  EXPECT_EQ(json["team_shapes"][0]["strips_of_each"], 2);
  EXPECT_EQ(json["team_shapes"][0]["strips"], 8);
  EXPECT_EQ(json["team_shapes"][0]["ranks"], 4);
  EXPECT_GE(json["team_shapes"][0]["head_ticks"],
            json["team_shapes"][0]["member_ticks"]);
  size_t shared = 0;
  for (const Json& matrix : json["micro_groups"][0]["matrices"])
    shared += matrix[4].size() == 4 ? 1 : 0;
  EXPECT_EQ(shared, 2u);
  EXPECT_FALSE(
      parsed(to_json(plan_view(shown(kTeamsOff)))).contains("team_shapes"));
}

}  // namespace
}  // namespace canzona::report::team_view_test

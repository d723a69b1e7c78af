#include "canzona/report/plan_figures.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/plan/make_plan.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/test_sample.h"
#include "canzona/shapes/read_model.h"

namespace canzona::report::plan_figures_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json json_of(const ReportPlan& shown) {
  return parse_json(to_json(plan_view(shown)), {});
}
Json json_of(const Sample& sample) { return json_of(make_sample(sample)); }

Comparison comparison_of(std::vector<ReportPlan> plans) {
  Comparison all{plans[0].plan.model.name, plans[0].plan.mesh, {}};
  for (ReportPlan& shown : plans) {
    const std::string name = shown.plan.options.strategy;
    all.strategies.push_back({name, std::move(shown), ""});
  }
  return all;
}

TEST(PlanFigures, HasALoadAndTheMemoryOfEveryRank) {
  const ReportPlan shown = make_sample({});
  const Json json = json_of(shown);
  EXPECT_EQ(json["report"], "plan");
  ASSERT_EQ(json["loads"].size(), 8u);
  EXPECT_EQ(json["loads"][3], json["ranks"][3]["load"]);
  EXPECT_EQ(json["memory_by_rank"]["rows"].size(), 8u);
  EXPECT_EQ(json["memory_by_rank"]["rows"][5][3],
            json["ranks"][5]["memory"]["master"]);
  EXPECT_EQ(json["wire"]["reduce-scatter"]["sent_intra_max"], 1 << 20);
  EXPECT_EQ(json["order"]["rank"], json["busiest_rank"]);
  EXPECT_EQ(json["order"]["columns"].size(), json["order"]["rows"][0].size());
}

TEST(PlanFigures, ManyRanksShareTheColumnsOfMemory) {
  const Json json = json_of({.mesh = {.dp = 1500}});
  EXPECT_LE(json["memory_by_rank"]["rows"].size(), 1024u);
  // The fuller of ranks 4 and 5, by the sample.
  EXPECT_EQ(json["memory_by_rank"]["rows"][2][0], 5);
}

TEST(PlanFigures, BucketsAreCutByHome) {
  const Json part = json_of(Sample{})["buckets"][0];
  EXPECT_EQ(part["homes"], 4);
  EXPECT_EQ(part["repeated"], false);
  ASSERT_EQ(part["rows"].size(), 2u);
  const Json& bucket = part["rows"][1];
  EXPECT_EQ(bucket["number"], 1);
  EXPECT_EQ(bucket["runs"][2][0], 2);  // the home
  EXPECT_EQ(bucket["runs"][2][1], 4);  // its tensors
  EXPECT_GT(part["rows"][0]["adamw_elements"], 0);
}

TEST(PlanFigures, RepeatedUpdatesHaveNoHome) {
  ReportPlan shown = make_sample({.strategy = "replicated"});
  PlanPart& part = shown.plan.parts[0];
  shown.plan.traffic = part.traffic = Traffic::kAllReduce;
  std::fill(part.home.begin(), part.home.end(), kEveryHome);
  part.owners = {};
  for (size_t m = 0; m < shown.plan.matrices.size(); ++m)
    part.owners.push_back(std::span<const int32_t>{});
  const Json json = json_of(shown);
  EXPECT_EQ(json["buckets"][0]["repeated"], true);
  EXPECT_EQ(json["buckets"][0]["rows"][0]["runs"][0][0], -1);
  EXPECT_EQ(json["tensors"]["rows"][1][3], -1);
  EXPECT_EQ(json["tensors"]["rows"][1][4], -1);
}

TEST(PlanFigures, ModelsWithoutMatricesAndLayersAreTold) {
  const Json json = json_of({.matrices = false});
  EXPECT_EQ(json["num_matrices"], 0);
  EXPECT_TRUE(json["micro_groups"].empty());
  EXPECT_EQ(json["mean"], 0);
  EXPECT_EQ(json_of({.layers = 0})["tensors"]["rows"].size(), 2u);
}

TEST(PlanFigures, ComparesStrategies) {
  const Comparison all = comparison_of(compare_sample({}));
  const Json json = parse_json(to_json(compare_view(all)), {});
  EXPECT_EQ(json["report"], "compare");
  EXPECT_EQ(json["before"], "start_offset");
  EXPECT_EQ(json["after"], "balanced");
  EXPECT_EQ(json["plan"]["strategy"], "balanced");
  EXPECT_EQ(json["strategies"][0]["loads"].size(), 8u);
  EXPECT_EQ(json["buckets_before"][0]["rows"].size(), 2u);
}

TEST(PlanFigures, BeforeIsTheFirstPlanWithoutStartOffset) {
  const Comparison all = comparison_of(
      {make_sample({.strategy = "megatron"}), make_sample({.strategy = "b"}),
       make_sample({.strategy = "contiguous"})});
  const Json json = parse_json(to_json(compare_view(all)), {});
  EXPECT_EQ(json["before"], "megatron");
  EXPECT_EQ(json["after"], "contiguous");
}

TEST(PlanPage, IsTheSameEveryTime) {
  ReportPlan shown = make_sample({.mesh = {.dp = 16, .tp = 8}});
  const std::string first = plan_html(shown);
  Comparison all = comparison_of({shown, shown});
  const std::string both = compare_html(all);
  shown.plan_seconds = all.strategies[0].shown->plan_seconds = 123;
  EXPECT_EQ(first, plan_html(shown));
  EXPECT_EQ(both, compare_html(all));
}

TEST(PlanPage, NamesNeverBecomeMarkup) {
  constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>'\"";
  ReportPlan shown = make_sample({.first_name = kHostile});
  shown.plan.model.name = kHostile;
  shown.plan.cost_basis.source = kHostile;
  shown.plan.rule_options["a"] = kHostile;
  for (Tensor& tensor : shown.plan.model.tensors) tensor.name += kHostile;
  for (const std::string& page :
       {plan_html(shown), compare_html(comparison_of({shown, shown}))}) {
    EXPECT_THAT(page, Not(HasSubstr("<img")));
    EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e\\u003cimg"));
  }
}

TEST(PlanPage, StaysSmallFor36000Tensors) {
  std::vector<ReportPlan> plans = compare_sample(
      {.mesh = {.dp = 128, .tp = 8}, .layers = 94, .experts = 128});
  ASSERT_GT(plans[0].plan.model.tensors.size(), 36'000u);
  EXPECT_LT(compare_html(comparison_of(std::move(plans))).size(), 3'000'000u);
}

TEST(PlanPage, RefusesAComparisonWithoutPlans) {
  EXPECT_THROW(compare_html({"m", Mesh{}, {{"balanced", {}, "too large"}}}),
               UsageError);
}

ReportPlan plan_with(const Model& model, const char* mesh, const char* rule,
                     const std::string& strategy) {
  const auto facts = make_rule_facts(rule, {});
  PlanOptions options;
  options.strategy = strategy;
  ReportPlan shown;
  shown.plan = make_plan({.model = model,
                          .mesh = parse_mesh(mesh),
                          .rule = *facts,
                          .options = options});
  shown.ranks = predict(shown.plan);
  shown.balance = measure_balance(shown.plan);
  return shown;
}

// Every strategy that takes the mesh; their parts add up.
void expect_figures(const Model& model, const char* mesh, const char* rule) {
  size_t plans = 0;
  for (const StrategyInfo& info : strategies()) {
    ReportPlan shown;
    try {
      shown = plan_with(model, mesh, rule, info.name);
    } catch (const UsageError&) {
      continue;  // not every strategy takes every mesh
    }
    ++plans;
    const Json json = json_of(shown);
    EXPECT_EQ(std::ssize(json["loads"]), shown.plan.mesh.world());
    EXPECT_EQ(json["tensors"]["rows"].size(), model.tensors.size());
    size_t tensors = 0;
    for (const Json& row : json["buckets"][0]["rows"])
      for (const Json& run : row["runs"]) tensors += run[1].get<size_t>();
    EXPECT_LE(tensors, model.tensors.size());
    EXPECT_EQ(json["micro_groups"].empty(), shown.plan.matrices.empty());
  }
  EXPECT_GE(plans, 2u) << mesh;
}

TEST(PlanFigures, OfRealPlansOnAllMeshes) {
  const Model model = read_model("qwen3-0.6b", {});
  for (const char* mesh : {"dp=1", "dp=8", "dp=4,tp=2", "dp=2,tp=2,pp=2",
                           "dp=2,cp=2,tp=2", "dp=32,tp=8"})
    expect_figures(model, mesh, "muon");
}

TEST(PlanFigures, OfEveryRuleAndOfAdamWAlone) {
  Model model = read_model("qwen3-0.6b", {.fused = true});
  for (const char* rule : {"muon", "shampoo", "soap"})
    expect_figures(model, "dp=4,tp=2", rule);
  route(model, {{"*", false}});
  expect_figures(model, "dp=4,tp=2", "muon");
}

std::string joined(const NameParts& parts) {
  std::string name = parts.pieces[0];
  for (size_t i = 0; i < parts.numbers.size(); ++i)
    name += std::to_string(parts.numbers[i]) + parts.pieces[i + 1];
  return name;
}

TEST(TensorTable, NamesLoseTheirNumbers) {
  const NameParts parts = split_name("layers.7.experts.12.up");
  EXPECT_THAT(parts.pieces, ElementsAre("layers.", ".experts.", ".up"));
  EXPECT_THAT(parts.numbers, ElementsAre(7, 12));
}

TEST(TensorTable, NamesComeBackExactly) {
  for (const char* name :
       {"", "norm", "7", "layers.0.up", "layers.007.up", "x00", "1.2.3",
        "a99999999999999999999b", "123456789", "1234567890"})
    EXPECT_EQ(joined(split_name(name)), name);
}

TEST(TensorTable, RowsNameTheirParts) {
  const ReportPlan shown = make_sample({});
  const Json data = json_of(shown)["tensors"];
  ASSERT_EQ(data["rows"].size(), shown.plan.model.tensors.size());
  // The embedding: AdamW, so no home.
  EXPECT_EQ(data["rows"][0][3], -1);
  // "layers.0.attn.proj".
  const Json& row = data["rows"][1];
  EXPECT_EQ(data["patterns"][row[0].get<size_t>()],
            Json::array({"layers.", ".attn.proj"}));
  EXPECT_EQ(row[5], 0);
  EXPECT_EQ(row[3], shown.plan.parts[0].home[1]);
  const Json& kind = data["kinds"][row[1].get<size_t>()];
  EXPECT_EQ(kind[0], Json::array({1024, 2048}));
  EXPECT_EQ(kind[3], "muon");
  EXPECT_EQ(kind[6], true);  // a matrix, whatever the rule is called
  const Json& embedding = data["kinds"][data["rows"][0][1].get<size_t>()];
  EXPECT_EQ(embedding[6], false);
}

TEST(TensorTable, EqualTensorsShareOneKind) {
  const Json data = json_of({.layers = 50})["tensors"];
  EXPECT_LE(data["kinds"].size(), 8u);
  EXPECT_LE(data["patterns"].size(), 8u);
}

TEST(TensorTable, OwnersOfATensorAreListedOnce) {
  ReportPlan shown = make_sample({});
  PlanPart& part = shown.plan.parts[0];
  EXPECT_THAT(owners_of_tensor(part, 1), ElementsAre(0));
  EXPECT_THAT(owners_of_tensor(part, 2), ElementsAre(1));
  // One tensor of two matrices.
  part.first_matrix = {0, 0, 2};
  EXPECT_THAT(owners_of_tensor(part, 1), ElementsAre(0, 1));
}

size_t blocks_in(const std::vector<DrawnRound>& rounds) {
  size_t count = 0;
  for (const DrawnRound& round : rounds)
    for (const auto& blocks : round.blocks) count += blocks.size();
  return count;
}

TEST(DrawnRounds, EveryMatrixOfTheHomeIsInOneRound) {
  const ReportPlan shown = make_sample({});
  size_t blocks = 0;
  for (int32_t home = 0; home < 4; ++home)
    blocks += blocks_in(rounds_of(shown.plan.parts[0], {.home = home}));
  EXPECT_EQ(blocks, shown.plan.matrices.size());
}

TEST(DrawnRounds, ATeamSharesItsMatrix) {
  ReportPlan shown = make_sample({.layers = 1});
  Plan& plan = shown.plan;
  const size_t all = blocks_in(rounds_of(plan.parts[0], {}));
  plan.parts[0].owners = {};
  plan.parts[0].rule_options =
      make_rule_facts("muon", {{"strips", "2"}})->options();
  const int32_t team[] = {0, 1};
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    plan.parts[0].owners.push_back(team);
  const std::vector<DrawnRound> rounds = rounds_of(plan.parts[0], {});
  EXPECT_EQ(blocks_in(rounds), 2 * all);
  const Block& head = rounds[0].blocks[0][0];
  const Block& member = rounds[0].blocks[1][0];
  ASSERT_EQ(head.matrix, member.matrix);
  EXPECT_GT(head.cost, member.cost);
  const auto whole =
      static_cast<double>(plan.costs[head.matrix].every_step.value());
  EXPECT_NEAR(head.cost + member.cost, whole, whole / 50);
}

TEST(DrawnRounds, TheBusiestRankIsTheFirstOfEquals) {
  ReportPlan shown = make_sample({});
  for (RankCost& rank : shown.ranks) rank.every_step = Ticks{7};
  EXPECT_EQ(busiest_rank(shown), 0);
  shown.ranks[5].every_step = Ticks{8};
  EXPECT_EQ(busiest_rank(shown), 5);
}

}  // namespace
}  // namespace canzona::report::plan_figures_test

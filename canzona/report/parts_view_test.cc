// Every view of plans in parts: both kinds are told of, ranks are those of the
// world, and nothing is left out.
#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/explain.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/test_plans.h"
#include "canzona/report/zero_view.h"

namespace canzona::report::parts_view_test {
namespace {

using ::testing::HasSubstr;

void expect_page(const std::string& text) {
  for (const std::string& line : split_text(text, '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
}

TEST(PartsView, ThePlanTellsOfBothKinds) {
  const std::string text = print_text(plan_view(shown_in_parts()), Ink());
  EXPECT_THAT(text, HasSubstr("dense tensors\n"));
  EXPECT_THAT(text, HasSubstr("z1=4,z2=2,z3=2: states over 4"));
  EXPECT_THAT(text, HasSubstr("experts, alike on each of 2 ep coordinates\n"));
  EXPECT_THAT(text, HasSubstr("z1=2,z2=1,z3=1: states over 2"));
  EXPECT_THAT(text, HasSubstr("groups of 2 / 1"));
  EXPECT_THAT(text, HasSubstr("pools"));
  for (const PartsWish& wish : wishes_of_parts())
    expect_page(print_text(plan_view(shown_in_parts(wish)), Ink()));
}

TEST(PartsView, TheJsonHasExpertsBesideDenseTensors) {
  const ReportPlan shown = shown_in_parts(
      {.mesh = "dp=4,ep=2", .dense = {8, 4, 4}, .experts = {2, 1, 2}});
  const Json json = parse_json(to_json(plan_view(shown)), {});
  EXPECT_EQ(json.at("num_buckets"), num_buckets(shown.plan));
  const Json& zero = json.at("zero");
  EXPECT_EQ(zero.at("sizes").at("z1"), 8);
  EXPECT_EQ(zero.at("places"), 4);
  EXPECT_EQ(zero.at("replicas"), 1);
  EXPECT_EQ(zero.at("z3_crosses_nodes"), true);
  const Json& experts = zero.at("experts");
  EXPECT_EQ(experts.at("sizes").at("z3"), 2);
  EXPECT_EQ(experts.at("places"), 2);
  EXPECT_EQ(experts.at("groups"), 1);
  EXPECT_EQ(experts.at("replicas"), 2);
  // Two homes of one coordinate are two ranks apart, and nodes have two.
  EXPECT_EQ(experts.at("z3_crosses_nodes"), true);
  EXPECT_GT(experts.at("gather_slots"), 0);
  EXPECT_EQ(experts.at("scatter_slots"), 0);
  EXPECT_TRUE(zero.at("operations").contains("replicas"));
  // Dense groups of two lie in a node, those of experts do not.
  const Plan near =
      shown_in_parts({.mesh = "dp=2,ep=2", .dense = {4, 2, 2}}).plan;
  EXPECT_FALSE(crosses_nodes(near.parts[0], 2));
  const Plan far =
      shown_in_parts(
          {.mesh = "dp=2,ep=2", .dense = {4, 2, 2}, .experts = {2, 1, 2}})
          .plan;
  EXPECT_FALSE(crosses_nodes(far.parts[1], 1));
  EXPECT_TRUE(crosses_nodes(far.parts[1], 2));
}

TEST(PartsView, EveryMatrixCanBeExplained) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const ReportPlan shown = shown_in_parts(wish);
    for (const Tensor& tensor : shown.plan.model.tensors) {
      const Found found = find_by_name(shown.plan, tensor.name);
      const std::string text =
          print_text(explain_matrices(shown, found), Ink());
      EXPECT_THAT(text, HasSubstr(tensor.name));
      expect_page(text);
    }
  }
}

// Experts of coordinate 1 lie on ranks 2, 3, 6 and 7; their groups of two are
// both homes.
TEST(PartsView, AnExpertNamesItsRanks) {
  const ReportPlan shown =
      shown_in_parts({.dense = {4, 4, 4}, .experts = {2, 2, 2}});
  const Found found = find_by_name(shown.plan, "layers.0.experts.3.up");
  const std::string text = print_text(explain_matrices(shown, found), Ink());
  EXPECT_THAT(text, HasSubstr("0 of 1: ranks 2 to 3, 6 to 7"));
  EXPECT_THAT(text, HasSubstr("experts of ep 1"));
  const Json json = parse_json(to_json(explain_matrices(shown, found)), {});
  for (const Json& piece : json["matrices"][0]["moves"]["pieces"])
    EXPECT_THAT(piece.at("rank").get<int>(), ::testing::AnyOf(2, 3, 6, 7));
}

TEST(PartsView, ARankHasAPlaceInBothKinds) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const ReportPlan shown = shown_in_parts(wish);
    for (int32_t rank = 0; rank < shown.plan.mesh.world(); ++rank) {
      const std::string text = print_text(explain_rank(shown, rank), Ink());
      EXPECT_THAT(text, HasSubstr("place       dense tensors: "));
      EXPECT_THAT(text, HasSubstr("place       experts"));
      expect_page(text);
      const Json json = parse_json(to_json(explain_rank(shown, rank)), {});
      EXPECT_EQ(std::ssize(json.at("matrices")),
                shown.ranks[static_cast<size_t>(rank)].num_matrices);
    }
  }
}

TEST(PartsView, FiguresAreOfBothKinds) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const Json json = parse_json(to_json(plan_view(shown_in_parts(wish))), {});
    EXPECT_TRUE(json.contains("zero"));
    EXPECT_EQ(json.at("buckets").at(0).at("part"), "dense tensors");
    EXPECT_EQ(json.at("micro_groups").at(0).at("part"), "dense tensors");
    EXPECT_EQ(json.at("buckets").size(), 2U);
    EXPECT_EQ(
        json.at("buckets").at(1).at("part").get<std::string>().find("experts"),
        0U);
  }
}

}  // namespace
}  // namespace canzona::report::parts_view_test

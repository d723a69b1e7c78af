#include "canzona/report/explain.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/test_plans.h"

namespace canzona::explain_test {
namespace {

using ::testing::HasSubstr;

void expect_page(const std::string& text) {
  for (const std::string& line : split_text(text, '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
}

TEST(Explain, EveryStrategyCanBeExplained) {
  for (const std::string& strategy : strategy_names()) {
    const ReportPlan shown = shown_plan({.strategy = strategy});
    for (const char* name : {"layers.0.up", "layers.2.down", "layers.1.norm"}) {
      const Found found = find_by_name(shown.plan, name);
      const std::string text = explain_matrices(shown, found, Ink());
      EXPECT_THAT(text, HasSubstr(name));
      expect_page(text);
      const Json json = parse_json(explain_matrices_json(shown, found), {});
      EXPECT_EQ(json.at("tensor"), name);
      EXPECT_EQ(json.at("matrices").size(), found.matrices.size());
    }
  }
}

TEST(Explain, AMatrixSaysWhyAndWhatMoves) {
  const ReportPlan shown = shown_plan();
  const std::string text =
      explain_matrices(shown, find_by_name(shown.plan, "layers.0.up"), Ink());
  for (const char* part :
       {"Why", "as planned", "without this matrix", "best other", "lower bound",
        "What moves", "reduce-scatter", "gather", "scatter", "all-gather"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Explain, ARankListsWhatItComputes) {
  const ReportPlan shown = shown_plan();
  for (int32_t rank = 0; rank < shown.plan.mesh.world(); ++rank) {
    expect_page(explain_rank(shown, rank, Ink()));
    const Json json = parse_json(explain_rank_json(shown, rank), {});
    EXPECT_EQ(json.at("rank"), rank);
    EXPECT_EQ(json.at("matrices").size(),
              static_cast<size_t>(
                  shown.ranks[static_cast<size_t>(rank)].num_matrices));
  }
}

TEST(Explain, ABucketListsItsTensors) {
  for (const std::string& strategy : strategy_names()) {
    const Plan plan = shown_plan({.strategy = strategy}).plan;
    for (int32_t b = 0; b < std::ssize(plan.parts[0].buckets); ++b) {
      expect_page(explain_bucket(plan, b, Ink()));
      const Json json = parse_json(explain_bucket_json(plan, b), {});
      EXPECT_EQ(json.at("tensors").size(),
                plan.parts[0].buckets[static_cast<size_t>(b)].tensors.size());
    }
  }
}

TEST(Explain, RefreshesNameTheirPhase) {
  const ReportPlan shown =
      shown_plan({.rule = "soap", .rule_options = {{"phases", "2"}}});
  EXPECT_THAT(
      explain_matrices(shown, find_by_name(shown.plan, "layers.0.up"), Ink()),
      HasSubstr("phase"));
}

}  // namespace
}  // namespace canzona::explain_test

#include "canzona/report/models_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "canzona/report/test_plans.h"

namespace canzona::report::audit_view_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Audit, HasARowForEveryMatrixAndEveryTensorOfAdamW) {
  const Plan plan = shown_plan().plan;
  const std::vector<AuditRow> rows = audit(plan);
  ASSERT_THAT(rows, SizeIs(9));
  EXPECT_EQ(rows[0].name, plan.model.tensors[0].name);
  EXPECT_EQ(rows[0].rule, "muon");
  EXPECT_EQ(rows[0].split, "whole");
  EXPECT_EQ(rows[0].home, plan.parts[0].home[0]);
  EXPECT_THAT(rows[0].owners, SizeIs(1));
  EXPECT_EQ(rows[0].bytes, 64 * 32 * 2);
  EXPECT_GT(rows[0].seconds, 0);
  const auto norm = std::find_if(
      rows.begin(), rows.end(),
      [](const AuditRow& row) { return row.name == "layers.0.norm"; });
  ASSERT_NE(norm, rows.end());
  EXPECT_EQ(norm->rule, "adamw");
  EXPECT_EQ(norm->home, kEveryHome);
  EXPECT_THAT(norm->owners, IsEmpty());
}

TEST(Audit, RepeatedUpdatesNameAllWhoRepeatThem) {
  const Plan plan = shown_plan({.strategy = "replicated"}).plan;
  EXPECT_THAT(audit(plan)[0].owners, ElementsAre(0, 1, 2, 3));
}

TEST(Audit, SplitMatricesNameTheirPart) {
  Model model = read_model("qwen3-0.6b", {.fused = true, .layers = 1});
  const auto rule = make_rule_facts("muon", {});
  PlanOptions options;
  options.splits = parse_splits("qkv");
  const Plan plan = make_plan({.model = model,
                               .mesh = parse_mesh("dp=2"),
                               .rule = *rule,
                               .options = options});
  std::vector<std::string> splits;
  for (const AuditRow& row : audit(plan)) splits.push_back(row.split);
  EXPECT_THAT(splits, testing::IsSupersetOf({"q", "k", "v", "whole"}));
}

TEST(Audit, TextAndJsonTellTheSame) {
  const Plan plan = shown_plan().plan;
  const std::string text = print_text(audit_view(plan), Ink(false));
  const std::string json = to_json(audit_view(plan));
  for (const AuditRow& row : audit(plan)) {
    EXPECT_THAT(text, HasSubstr(row.name));
    EXPECT_THAT(json, HasSubstr("\"" + row.name + "\""));
  }
  EXPECT_THAT(text, HasSubstr("predicted"));
}

}  // namespace
}  // namespace canzona::report::audit_view_test

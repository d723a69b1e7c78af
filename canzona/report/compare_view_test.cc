#include "canzona/report/compare_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::compare_view_test {
namespace {

using ::testing::HasSubstr;

Comparison all_strategies() {
  Comparison comparison{"layered", parse_mesh("dp=2,tp=2"), {}};
  for (const std::string& name : strategy_names())
    comparison.strategies.push_back({name, shown_plan({.strategy = name}), ""});
  return comparison;
}

TEST(CompareJson, HasEveryMember) {
  const Json json = parse_json(to_json(compare_view(all_strategies())), {});
  EXPECT_EQ(json.at("model"), "layered");
  EXPECT_EQ(json.at("world"), 4);
  EXPECT_EQ(json.at("num_matrices"), 6);
  EXPECT_TRUE(json.at("num_buckets").is_number_integer());
  ASSERT_EQ(json.at("strategies").size(), strategy_names().size());
  for (const Json& strategy : json.at("strategies")) {
    for (const char* axis : {"dp", "tp", "tp_worst"})
      for (const char* figure :
           {"memory_max_over_mean", "shard_flops_max_over_mean",
            "cost_max_over_mean"})
        EXPECT_GE(strategy.at(axis).at(figure), 1 - 1e-9) << strategy;
    for (const char* figure : {"bucket_bytes_max_over_even", "j_dp", "j_comm"})
      EXPECT_TRUE(strategy.at("dp").at(figure).is_number());
    for (const char* figure : {"makespan_over_mean", "makespan_over_bound",
                               "bound_over_mean", "idle_ranks"})
      EXPECT_TRUE(strategy.at("all_ranks").at(figure).is_number());
    for (const char* figure : {"bytes_per_rank_max", "memory_per_rank_max",
                               "memory_per_rank_mean", "plan_seconds"})
      EXPECT_TRUE(strategy.at(figure).is_number());
  }
}

TEST(CompareJson, ARefusalIsAnEntry) {
  Comparison comparison = all_strategies();
  comparison.strategies[3] = {"contiguous", std::nullopt, "too large: 'w'"};
  const Json json = parse_json(to_json(compare_view(comparison)), {});
  EXPECT_EQ(json.at("strategies").at(3).at("error"), "too large: 'w'");
  EXPECT_FALSE(json.at("strategies").at(3).contains("dp"));
}

TEST(CompareText, FitsThePage) {
  const std::string text = print_text(compare_view(all_strategies()), Ink());
  for (const std::string& line : split_text(text, '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
  for (const std::string& name : strategy_names())
    EXPECT_THAT(text, HasSubstr(name));
}

TEST(CompareText, NamesRefusals) {
  Comparison comparison = all_strategies();
  comparison.strategies[0] = {"replicated", std::nullopt, "no room"};
  EXPECT_THAT(print_text(compare_view(comparison), Ink()),
              HasSubstr("no room"));
}

TEST(Comparison, FirstSkipsRefusals) {
  Comparison comparison{"m", Mesh{}, {{"a", std::nullopt, "no"}}};
  EXPECT_EQ(comparison.first(), nullptr);
  comparison.strategies.push_back({"b", shown_plan(), ""});
  EXPECT_EQ(comparison.first(), &*comparison.strategies[1].shown);
}

}  // namespace
}  // namespace canzona::report::compare_view_test

#include "canzona/report/compare_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"

namespace canzona::report::compare_zero_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RankedMesh row_of(const ZeroSizes& sizes, int64_t parameters, bool fits) {
  RankedMesh row{.weighed = {.choice = {.mesh = {}, .dense = sizes}},
                 .reason = fits ? "the fastest of 1" : "1.00 GiB over the cap",
                 .verdict = fits ? MeshVerdict::kFits : MeshVerdict::kOverCap};
  row.weighed.memory.parameters = Bytes(parameters);
  row.weighed.memory.pools = Bytes(1 << 20);
  row.weighed.activations = 1 << 20;
  row.weighed.slow_bytes = 3 << 20;
  row.weighed.time.seconds = 0.25;
  row.weighed.tokens_per_second = 32'000;
  return row;
}

ZeroRanking three() {
  ZeroRanking all;
  all.model = "by <hand>";
  all.mesh = {.dp = 4};
  all.rule = "muon";
  all.options.memory_cap_bytes = 1 << 30;
  all.work.compute.tokens = 1000;
  all.work.num_micro_batches = 2;
  all.answer.kinds = {row_of({4, 4, 4}, 1 << 20, true),
                      row_of({4, 1, 1}, int64_t{2} << 30, false),
                      {.weighed = {.choice = {.mesh = {}, .dense = {4, 2, 4}}},
                       .reason = "strategy x wants z2 = z3",
                       .verdict = MeshVerdict::kRefused}};
  return all;
}

TEST(CompareZero, TheTableHasReasonsAndKinds) {
  const std::string text = print_text(zero_comparison_view(three()), Ink());
  EXPECT_THAT(text, HasSubstr("4,4,4"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB over the cap"));
  EXPECT_THAT(text, HasSubstr("strategy x wants z2 = z3"));
  EXPECT_THAT(text, HasSubstr("activations"));
  EXPECT_THAT(text, HasSubstr("the fastest of 1"));
  // A kind that nobody has takes no column.
  EXPECT_THAT(text, Not(HasSubstr("master")));
}

// 4 ranks with 2 micro-batches of 1,000 tokens each, in a quarter of a second.
TEST(CompareZero, TokensPerSecondOfOneGlobalBatch) {
  const std::string text = print_text(zero_comparison_view(three()), Ink());
  EXPECT_THAT(text, HasSubstr("8.00K tokens on all ranks"));
  EXPECT_THAT(text, HasSubstr("tokens/s"));
  EXPECT_THAT(text, HasSubstr("250 ms     32.0K"));
  const Json json = parse_json(to_json(zero_comparison_view(three())), {});
  EXPECT_EQ(json.at("global_batch_tokens"), 8000);
  EXPECT_EQ(json.at("sizes").at(0).at("tokens_per_second"), 32'000);
}

TEST(CompareZero, SizesHaveWords) {
  const Ink wide(false, kAnyWidth);
  EXPECT_THAT(print_text(zero_comparison_view(three()), wide),
              HasSubstr("states over 4, gradients and parameters whole"));
  EXPECT_THAT(print_text(zero_comparison_view(three()), Ink()),
              HasSubstr("z1=4,z2=4,z3=4 (states, gradients and parameters over "
                        "4)"));
  EXPECT_EQ(parse_json(to_json(zero_comparison_view(three())), {})
                .at("sizes")
                .at(1)
                .at("words"),
            "states over 4, gradients and parameters whole");
}

// A row that was not planned has only a lower bound on its memory.
TEST(CompareZero, DroppedSizesHaveABoundAlone) {
  ZeroRanking all = three();
  all.answer.kinds[1].least_bytes = int64_t{2} << 30;
  EXPECT_THAT(print_text(zero_comparison_view(all), Ink()),
              HasSubstr("≥ 2.00 GiB"));
  const Json json = parse_json(to_json(zero_comparison_view(all)), {});
  const Json& dropped = json.at("sizes").at(1);
  EXPECT_EQ(dropped.at("least_memory_bytes"), int64_t{2} << 30);
  EXPECT_FALSE(dropped.contains("predicted_iteration_seconds"));
}

TEST(CompareZero, NoLineIsTooWide) {
  const std::string text = print_text(zero_comparison_view(three()), Ink());
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(display_width(text.substr(at, end - at)), kPageWidth);
    at = end + 1;
  }
}

TEST(CompareZero, TheJsonCountsWhatLiesBeside) {
  const Json json = parse_json(to_json(zero_comparison_view(three())), {});
  EXPECT_EQ(json.at("choice").at("z3"), 4);
  const Json& best = json.at("sizes").at(0);
  EXPECT_EQ(best.at("memory_bytes"), 3 << 20);
  EXPECT_EQ(best.at("memory").at("activations"), 1 << 20);
  EXPECT_EQ(best.at("fits"), true);
  EXPECT_EQ(best.at("name"), "zero3");
  EXPECT_FALSE(json.at("sizes").at(2).contains("memory"));
}

TEST(CompareZero, ExpertsHaveAColumnWhereAnyAreCutApart) {
  ZeroRanking all = three();
  EXPECT_THAT(print_text(zero_comparison_view(all), Ink()),
              Not(HasSubstr("experts")));
  EXPECT_FALSE(parse_json(to_json(zero_comparison_view(all)), {})
                   .at("sizes")
                   .at(0)
                   .contains("experts"));
  all.answer.kinds[0].weighed.choice.experts = {2, 1, 2};
  for (RankedMesh& row : all.answer.kinds) {
    RankMemory& memory = row.weighed.memory;
    row.weighed.activations = 0;
    memory.states = memory.master = memory.gradients = memory.buffers =
        Bytes(int64_t{10} << 30);
  }
  const std::string text = print_text(zero_comparison_view(all), Ink());
  EXPECT_THAT(text, HasSubstr("4,4,4     2,1,2"));
  EXPECT_THAT(text, HasSubstr("4,1,1     -"));
  EXPECT_THAT(text, HasSubstr("4,4,4/2,1,2"));
  EXPECT_THAT(text, HasSubstr("with z1 of experts below 4"));
  for (const std::string& line : split_text(text, '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
  const Json json = parse_json(to_json(zero_comparison_view(all)), {});
  EXPECT_EQ(json.at("sizes").at(0).at("experts").at("z3"), 2);
  EXPECT_EQ(json.at("sizes").at(0).at("name_of_experts"), "z1=2,z2=1,z3=2");
  EXPECT_EQ(json.at("choice_of_experts").at("z1"), 2);
  EXPECT_FALSE(json.at("sizes").at(1).contains("experts"));
  EXPECT_EQ(json.at("expert_homes"), 4);
}

// All sizes of 16 homes, which are more than a screen shows.
ZeroRanking many() {
  ZeroRanking all = three();
  all.mesh = {.dp = 16};
  all.answer.kinds.clear();
  for (const ZeroSizes& sizes : all_zero_sizes(16))
    all.answer.kinds.push_back(row_of(sizes, 1 << 20, true));
  return all;
}

TEST(CompareZero, TheJsonNamesChoicesAsOneTypesThem) {
  const Json json = parse_json(to_json(zero_comparison_view(many())), {});
  std::vector<std::string> names;
  for (const Json& row : json.at("sizes"))
    names.push_back(row.at("name").get<std::string>());
  EXPECT_THAT(
      names, testing::IsSupersetOf({"none", "zero1", "zero2", "zero3", "hier:8",
                                    "hier:2", "replica:4", "z1=16,z2=2,z3=1"}));
}

TEST(CompareZero, NothingFits) {
  ZeroRanking all = three();
  all.answer.kinds.erase(all.answer.kinds.begin());
  EXPECT_TRUE(parse_json(to_json(zero_comparison_view(all)), {})
                  .at("choice")
                  .is_null());
  EXPECT_EQ(parse_json(to_json(zero_comparison_view(all)), {})
                .at("sizes")
                .at(0)
                .at("fits"),
            false);
}

TEST(CompareZero, ThePageHoldsTheJsonEscaped) {
  const std::string page = zero_comparison_html(three());
  EXPECT_THAT(page, HasSubstr("by \\u003chand\\u003e"));
  EXPECT_THAT(page, Not(HasSubstr("by <hand>")));
  EXPECT_THAT(page, HasSubstr("\"memory_cap_bytes\":1073741824"));
}

}  // namespace
}  // namespace canzona::report::compare_zero_test

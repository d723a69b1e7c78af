#include "canzona/report/compare_zero.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ComparedZero row_of(const ZeroSizes& sizes, int64_t parameters, bool fits) {
  ComparedZero row{.sizes = sizes, .planned = true, .fits = fits};
  row.memory.parameters = Bytes(parameters);
  row.memory.pools = Bytes(1 << 20);
  row.slow_bytes = 3 << 20;
  row.seconds = 0.25;
  row.reason = fits ? "the fastest of 1" : "1.00 GiB over the cap";
  return row;
}

ZeroComparison three() {
  ZeroComparison all;
  all.model = "by <hand>";
  all.mesh = {.dp = 4};
  all.rule = "muon";
  all.memory_cap_bytes = int64_t{1} << 30;
  all.beside_bytes = 1 << 20;
  all.verdict = "z1=4,z2=4,z3=4: the fastest of 1";
  all.rows = {row_of({4, 4, 4}, 1 << 20, true),
              row_of({4, 1, 1}, int64_t{2} << 30, false),
              {.sizes = {4, 2, 4}, .reason = "strategy x wants z2 = z3"}};
  return all;
}

TEST(CompareZero, TheTableHasReasonsAndKinds) {
  const std::string text = zero_comparison_text(three(), Ink());
  EXPECT_THAT(text, HasSubstr("4,4,4"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB over the cap"));
  EXPECT_THAT(text, HasSubstr("strategy x wants z2 = z3"));
  EXPECT_THAT(text, HasSubstr("activations"));
  EXPECT_THAT(text, HasSubstr("the fastest of 1"));
  // A kind that nobody has takes no column.
  EXPECT_THAT(text, Not(HasSubstr("master")));
}

TEST(CompareZero, NoLineIsTooWide) {
  const std::string text = zero_comparison_text(three(), Ink());
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(display_width(text.substr(at, end - at)), kPageWidth);
    at = end + 1;
  }
}

TEST(CompareZero, TheJsonCountsWhatLiesBeside) {
  const Json json = parse_json(zero_comparison_json(three()), {});
  EXPECT_EQ(json.at("choice").at("z3"), 4);
  const Json& best = json.at("sizes").at(0);
  EXPECT_EQ(best.at("memory_bytes"), 3 << 20);
  EXPECT_EQ(best.at("memory").at("activations"), 1 << 20);
  EXPECT_EQ(best.at("fits"), true);
  EXPECT_FALSE(json.at("sizes").at(2).contains("memory"));
}

TEST(CompareZero, ExpertsHaveAColumnWhereAnyAreCutApart) {
  ZeroComparison all = three();
  EXPECT_THAT(zero_comparison_text(all, Ink()), Not(HasSubstr("experts")));
  EXPECT_THAT(zero_comparison_html(all), Not(HasSubstr("experts")));
  EXPECT_FALSE(parse_json(zero_comparison_json(all), {})
                   .at("sizes")
                   .at(0)
                   .contains("experts"));
  all.rows[0].experts = {2, 1, 2};
  all.beside_bytes = 0;
  for (ComparedZero& row : all.rows)
    row.memory.states = row.memory.master = row.memory.gradients =
        row.memory.buffers = Bytes(int64_t{10} << 30);
  const std::string text = zero_comparison_text(all, Ink());
  EXPECT_THAT(text, HasSubstr("4,4,4     2,1,2"));
  EXPECT_THAT(text, HasSubstr("4,1,1     -"));
  EXPECT_THAT(text, HasSubstr("4,4,4/2,1,2"));
  EXPECT_THAT(text, HasSubstr("with z1 of experts below 4"));
  for (const std::string& line : split_text(text, '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
  const Json json = parse_json(zero_comparison_json(all), {});
  EXPECT_EQ(json.at("sizes").at(0).at("experts").at("z3"), 2);
  EXPECT_EQ(json.at("choice_of_experts").at("z1"), 2);
  EXPECT_FALSE(json.at("sizes").at(1).contains("experts"));
  const std::string page = zero_comparison_html(all);
  EXPECT_THAT(page, HasSubstr("<th>experts</th>"));
  EXPECT_THAT(page, HasSubstr("<td>2, 1, 2</td>"));
  EXPECT_THAT(page, HasSubstr("4, 4, 4 / 2, 1, 2"));
}

TEST(CompareZero, NothingFits) {
  ZeroComparison all = three();
  all.rows.erase(all.rows.begin());
  EXPECT_TRUE(parse_json(zero_comparison_json(all), {}).at("choice").is_null());
  EXPECT_THAT(zero_comparison_html(all), HasSubstr("Nearest"));
}

TEST(CompareZero, ThePageIsEscapedAndShowsTheCap) {
  const std::string page = zero_comparison_html(three());
  EXPECT_THAT(page, HasSubstr("by &lt;hand&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("by <hand>")));
  EXPECT_THAT(page, HasSubstr("cap 1.00 GiB"));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
}

}  // namespace
}  // namespace canzona

#include "canzona/plan/cost/cost_table.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::plan::cost_table_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A table with these measurements.
std::string table_of(const std::string& measurements) {
  return cat(R"({"format": "canzona.cost_table", "version": 1,
                 "device": "Toy 1", "kind": "cpu", "precision": "fp32",
                 "date": "2025-03-31", "measurements": [)",
             measurements, "]}");
}

std::string gram_of(const std::string& entries) {
  return table_of(cat(R"({"rule": "muon", "algorithm": "gram",
                          "options": {"newton_schulz": "gram"},
                          "entries": [)",
                      entries, "]}"));
}

CostTable parse(const std::string& text) {
  return CostTable::parse(text, "toy.json");
}

double muon_seconds(const CostTable& table, MatrixShape shape,
                    const RuleOptions& options = {}) {
  return table.seconds(*make_rule_facts("muon", options), shape, false).value();
}

// With one restart and five steps a gram 10x20 costs 26,000 flops, a 10x30
// 32,000, a 10x40 38,000 and a 10x70 56,000.
const char* const kTwoEntries = R"(
    {"rows": 10, "cols": 20, "seconds": 26e-6},
    {"rows": 10, "cols": 40, "seconds": 114e-6})";

TEST(CostTable, SaysWhatWasMeasured) {
  const CostTable table = parse(gram_of(kTwoEntries));
  EXPECT_EQ(table.device(), "Toy 1");
  EXPECT_EQ(table.kind(), "cpu");
  EXPECT_EQ(table.precision(), "fp32");
  EXPECT_EQ(table.date(), "2025-03-31");
  EXPECT_EQ(table.element_wise_bytes_per_second(), std::nullopt);
  ASSERT_EQ(table.measurements().size(), 1U);
  EXPECT_EQ(table.measurements()[0].rule, "muon");
  EXPECT_EQ(table.measurements()[0].algorithm, "gram");
}

TEST(CostTable, GivesMeasuredShapesAsMeasured) {
  const CostTable table = parse(gram_of(kTwoEntries));
  EXPECT_EQ(muon_seconds(table, {10, 20}), 26e-6);
  EXPECT_EQ(muon_seconds(table, {10, 40}), 114e-6);
}

TEST(CostTable, TakesATransposedShapeOnlyIfThereIsNoOther) {
  EXPECT_EQ(muon_seconds(parse(gram_of(kTwoEntries)), {40, 10}), 114e-6);
  const CostTable both = parse(gram_of(R"(
      {"rows": 10, "cols": 40, "seconds": 1},
      {"rows": 40, "cols": 10, "seconds": 2})"));
  EXPECT_EQ(muon_seconds(both, {10, 40}), 1);
  EXPECT_EQ(muon_seconds(both, {40, 10}), 2);
}

// Rates of 1 and 3 ns a flop; half way in flops, 2 ns.
TEST(CostTable, InterpolatesTheRate) {
  const CostTable table = parse(gram_of(kTwoEntries));
  EXPECT_DOUBLE_EQ(muon_seconds(table, {10, 30}), 64e-6);
}

TEST(CostTable, KeepsTheRateBeyondTheEnds) {
  const CostTable table = parse(gram_of(kTwoEntries));
  EXPECT_DOUBLE_EQ(muon_seconds(table, {10, 70}), 3e-9 * 56'000);
  EXPECT_DOUBLE_EQ(muon_seconds(table, {10, 15}), 1e-9 * 23'000);
}

// Both cost 26,000 flops: the rate there is the mean of the two.
TEST(CostTable, TakesTheMeanOfEqualFlops) {
  const CostTable table = parse(gram_of(R"(
      {"rows": 10, "cols": 20, "seconds": 26e-6},
      {"rows": 20, "cols": 10, "seconds": 78e-6})"));
  EXPECT_DOUBLE_EQ(muon_seconds(table, {10, 70}), 2e-9 * 56'000);
}

TEST(CostTable, DoesNotDependOnTheOrderOfEntries) {
  const std::string a = R"({"rows": 10, "cols": 20, "seconds": 0.1})";
  const std::string b = R"({"rows": 20, "cols": 10, "seconds": 0.2})";
  const std::string c = R"({"rows": 7, "cols": 9, "seconds": 0.3})";
  const CostTable one = parse(gram_of(cat(a, ",", b, ",", c)));
  const CostTable two = parse(gram_of(cat(c, ",", b, ",", a)));
  for (int64_t n = 12; n < 100; ++n) {
    EXPECT_EQ(muon_seconds(one, {9, n}), muon_seconds(two, {9, n}));
  }
  EXPECT_EQ(one.mean_seconds_per_flop(false), two.mean_seconds_per_flop(false));
}

TEST(CostTable, DividesByTheBatch) {
  const CostTable table =
      parse(gram_of(R"({"rows": 10, "cols": 20, "batch": 4, "seconds": 2})"));
  EXPECT_EQ(muon_seconds(table, {10, 20}), 0.5);
}

// Ten steps and three restarts: 12·2000 + (40 - 12)·1000 = 52,000 flops.
TEST(CostTable, ScalesWhatWasMeasuredWithOtherOptions) {
  const CostTable table = parse(gram_of(kTwoEntries));
  EXPECT_DOUBLE_EQ(muon_seconds(table, {10, 20}, {{"steps", "10"}}), 52e-6);
}

TEST(CostTable, KnowsOnlyWhatWasMeasured) {
  const CostTable table = parse(gram_of(kTwoEntries));
  const auto muon = make_rule_facts("muon", {});
  EXPECT_EQ(table.seconds(*muon, {10, 10}, false), std::nullopt);  // symmetric
  EXPECT_EQ(table.seconds(*make_rule_facts("soap", {{"refresh", "qr"}}),
                          {10, 20}, false),
            std::nullopt);
}

TEST(CostTable, NoWorkTakesNoTime) {
  const CostTable table = parse(gram_of(kTwoEntries));
  const auto gram = make_rule_facts("muon", {{"newton_schulz", "gram"}});
  EXPECT_EQ(table.seconds(*gram, {0, 10}, false), 0);
  EXPECT_EQ(table.seconds(*gram, {10, 20}, true), 0);
}

// 3x3: 270 flops a step, 360 a refresh. 6x6: 8 times as many.
TEST(CostTable, MeasuresRefreshesApart) {
  const CostTable table = parse(table_of(R"(
      {"rule": "soap", "options": {"refresh": "qr"}, "algorithm": "qr",
       "entries": [
         {"rows": 3, "cols": 3, "seconds": 0.5, "refresh_seconds": 0.75},
         {"rows": 9, "cols": 9, "seconds": 20}]})"));
  const auto soap = make_rule_facts("soap", {{"refresh", "qr"}});
  EXPECT_EQ(table.seconds(*soap, {3, 3}, false), 0.5);
  EXPECT_EQ(table.seconds(*soap, {3, 3}, true), 0.75);
  EXPECT_DOUBLE_EQ(table.seconds(*soap, {6, 6}, true).value(), 6);
  EXPECT_DOUBLE_EQ(table.mean_seconds_per_flop(true).value(), 0.75 / 468);
}

TEST(CostTable, HasNoRefreshTimesWhereNoneWereMeasured) {
  const CostTable table = parse(table_of(R"(
      {"rule": "soap", "options": {"refresh": "qr"}, "algorithm": "qr",
       "entries": [
         {"rows": 3, "cols": 3, "seconds": 0.5}]})"));
  EXPECT_EQ(table.seconds(*make_rule_facts("soap", {{"refresh", "qr"}}), {3, 3},
                          true),
            std::nullopt);
  EXPECT_EQ(table.mean_seconds_per_flop(true), std::nullopt);
}

// Element-wise work is bound by memory and says nothing of products.
TEST(CostTable, MeanRateLeavesElementWiseWorkOut) {
  const std::string adamw = R"({"rule": "adamw", "algorithm": "elementwise",
      "entries": [{"rows": 1, "cols": 1, "seconds": 9}]})";
  const CostTable table = parse(table_of(cat(adamw, R"(,
      {"rule": "muon", "algorithm": "gram", "entries": [)",
                                             kTwoEntries, "]}")));
  EXPECT_DOUBLE_EQ(table.mean_seconds_per_flop(false).value(), 140e-6 / 64'000);
  EXPECT_EQ(parse(table_of(adamw)).mean_seconds_per_flop(false), std::nullopt);
}

TEST(CostTable, ReadsTheRateOfElementWiseWork) {
  std::string text = gram_of(kTwoEntries);
  text.insert(1, R"("element_wise_bytes_per_second": 4.3e12, )");
  EXPECT_EQ(parse(text).element_wise_bytes_per_second(), 4.3e12);
  std::string slow = gram_of(kTwoEntries);
  slow.insert(1, R"("element_wise_bytes_per_second": 1e-300, )");
  EXPECT_THAT([&] { parse(slow); },
              ThrowsMessage<UsageError>(HasSubstr(
                  "element_wise_bytes_per_second is 1e-300, expected at least "
                  "1")));
}

// NorMuon has three flops and three passes per element more than plain Muon.
TEST(CostTable, AddsPassesOfOptionsThatWereNotMeasured) {
  constexpr double kFlops = 26.6 / 26;
  const RuleOptions normuon = {{"second_moment", "normuon"}};
  std::string text = gram_of(kTwoEntries);
  EXPECT_DOUBLE_EQ(muon_seconds(parse(text), {10, 20}, normuon),
                   26e-6 * kFlops);
  text.insert(1, R"("element_wise_bytes_per_second": 1e9, )");
  EXPECT_DOUBLE_EQ(muon_seconds(parse(text), {10, 20}, normuon),
                   26e-6 * kFlops + 12 * 200 / 1e9);
  EXPECT_EQ(muon_seconds(parse(text), {10, 20}), 26e-6);
  const std::string measured = R"("second_moment": "normuon", )";
  text.insert(text.find(R"("newton_schulz")"), measured);
  EXPECT_EQ(muon_seconds(parse(text), {10, 20}, normuon), 26e-6);
  EXPECT_DOUBLE_EQ(
      muon_seconds(parse(text), {10, 20}, {{"constraint", "hyperball"}}),
      26e-6 * (26 + 11 * 0.2) / 26.6 + 8 * 200 / 1e9);
}

struct Refused {
  const char* from;  // in a good table
  const char* to;
  const char* why;
};

class RefusedTable : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedTable, NamesTheFileAndTheReason) {
  const Refused& refused = GetParam();
  std::string text = gram_of(kTwoEntries);
  const size_t at = text.find(refused.from);
  ASSERT_NE(at, std::string::npos) << refused.from;
  text.replace(at, std::string(refused.from).size(), refused.to);
  EXPECT_THAT([&] { parse(text); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("toy.json"), HasSubstr(refused.why))))
      << refused.to;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedTable,
    ::testing::Values(
        Refused{"cost_table", "plan", "expected canzona.cost_table"},
        Refused{"\"version\": 1", "\"version\": 2", "from 1 to 1"},
        Refused{"Toy 1", "", "1 to 200 printable"},
        Refused{"Toy 1", "Toy\\u001b[2J", "1 to 200 printable"},
        Refused{"\"cpu\"", "\"gpu\"", "did you mean 'cpu'?"},
        Refused{"\"fp32\"", "\"fp31\"", "did you mean"},
        Refused{"2025-03-31", "31.03.2025", "YYYY-MM-DD"},
        Refused{"2025-03-31", "2025-03-3", "YYYY-MM-DD"},
        Refused{"\"date\"", "\"data\"", "did you mean 'date'?"},
        Refused{"\"date\": \"2025-03-31\",", "", "'date' is missing"},
        Refused{"muon", "moun", "did you mean 'muon'?"},
        Refused{"\"newton_schulz\"", "\"newton\"", "'newton'"},
        Refused{": \"gram\"}", ": \"grm\"}", "did you mean 'gram'?"},
        Refused{": \"gram\"}", ": 5}", "a text"},
        Refused{"{\"newton_schulz\": \"gram\"}", "[]", "not an object"},
        Refused{"\"algorithm\": \"gram\"", "\"algorithm\": \"standard\"",
                "runs 'gram' on a 10x20 matrix, not 'standard'"},
        Refused{"\"rows\": 10", "\"rows\": 0", "entries[0]"},
        Refused{"\"rows\": 10", "\"rows\": 1.5", "entries[0]"},
        Refused{"\"rows\": 10", "\"rows\": 2000000000000", "entries[0]"},
        Refused{"\"rows\": 10", "\"row\": 10", "did you mean 'rows'?"},
        Refused{"10, \"cols\": 20", "1099511627776, \"cols\": 1099511627776",
                "entries[0]: rule muon"},
        Refused{"26e-6", "0", "more than 0"},
        Refused{"26e-6", "-1", "more than 0"},
        Refused{"26e-6", "1e6", "less than 1e+06"},
        Refused{"26e-6", "1e999", "toy.json"},
        Refused{"26e-6", "\"1\"", "a number"},
        Refused{"26e-6", "null", "a number"},
        Refused{"26e-6", "1, \"batch\": 0", "batch"},
        Refused{"26e-6", "1, \"refresh_seconds\": 1", "no work"},
        Refused{"\"cols\": 40", "\"cols\": 20", "10x20 comes twice"},
        Refused{"\"entries\": [", "\"entries\": 1, \"x\": [", "unknown key"}));

TEST(CostTable, RefusesGroupsThatComeTwice) {
  const std::string group = R"({"rule": "muon", "algorithm": "gram",
      "entries": [{"rows": 1, "cols": 2, "seconds": 1}]})";
  EXPECT_THAT([&] { parse(table_of(cat(group, ",", group))); },
              ThrowsMessage<UsageError>(HasSubstr("muon with gram")));
}

TEST(CostTable, RefusesTablesWithoutEntries) {
  EXPECT_THROW(parse(table_of("")), UsageError);
  EXPECT_THROW(parse(gram_of("")), UsageError);
  EXPECT_THROW(parse(table_of("1")), UsageError);
  EXPECT_THROW(parse(gram_of("1")), UsageError);
  EXPECT_THROW(parse("[]"), UsageError);
  EXPECT_THROW(parse(""), UsageError);
}

TEST(CostTable, BoundsTheNumberOfEntries) {
  const auto with = [](int count) {
    std::string entries;
    for (int i = 1; i <= count; ++i) {
      if (i > 1) entries += ',';
      entries += cat(R"({"rows": 1, "cols": )", i + 1, R"(, "seconds": 1})");
    }
    return gram_of(entries);
  };
  EXPECT_EQ(parse(with(100'000)).measurements()[0].every_step.samples().size(),
            100'000U);
  EXPECT_THAT([&] { parse(with(100'001)); },
              ThrowsMessage<UsageError>(HasSubstr("the limit is 100000")));
}

}  // namespace
}  // namespace canzona::plan::cost_table_test

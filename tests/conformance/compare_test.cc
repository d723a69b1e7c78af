#include "tests/conformance/fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/conformance/replay.h"
#include "tests/conformance/test_fixture.h"

namespace canzona::tests::compare_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Deviation, IsTheLargestDistanceOverTheLargestExpectation) {
  EXPECT_EQ(deviation(Values{1, -8, 3}, Values{1, -8, 1}), 0.25);
  EXPECT_EQ(deviation(Values{1, 2}, Values{1, 2}), 0);
}

TEST(Deviation, OfZerosIsAllOrNothing) {
  EXPECT_EQ(deviation(Values{0, -0.0}, Values{0, 0}), 0);
  EXPECT_EQ(deviation(Values{0, 1e-300}, Values{0, 0}), kInf);
}

TEST(Deviation, IsNotANumberIfOneIsNot) {
  for (double odd : {kNan, kInf, -kInf}) {
    EXPECT_FALSE(deviation(Values{1, odd}, Values{1, 1}) <= 1e300);
    EXPECT_FALSE(deviation(Values{1, 1}, Values{1, odd}) <= 1e300);
    EXPECT_FALSE(deviation(Values{odd, 1}, Values{odd, 1}) <= 1e300);
  }
}

TEST(ColumnSigns, AreTakenFromTheExpectation) {
  Values got = {1, -2, 3, -4};
  match_column_signs(got, Values{1, 2, 3, 4}, 2);
  EXPECT_THAT(got, ElementsAre(1, 2, 3, 4));
  got = {-1, 2, -3, 4};
  match_column_signs(got, Values{1, 2, 3, 4}, 2);
  EXPECT_THAT(got, ElementsAre(1, 2, 3, 4));
}

TEST(ColumnSigns, TurnWholeColumnsOnly) {
  Values got = {1, 0, -3, 1};
  match_column_signs(got, Values{-1, 0, -3, -1}, 2);
  EXPECT_THAT(got, ElementsAre(1, 0, -3, -1));
}

TEST(Tolerance, IsThatOfTheLongestKey) {
  TestFixture f = adamw_fixture();
  f.metadata["tolerance"] =
      R"({"out_f32": 1, "out_f32.r2": 2, "out_f32.r2.10": 3, "x": null})";
  const Fixture fixture = f.read();
  const auto of = [&](const char* name) {
    return tolerance_of(fixture, *parse_tensor_name(name));
  };
  EXPECT_EQ(of("out_f32.r2.10"), 3);
  EXPECT_EQ(of("out_f32.r2.1"), 2);
  EXPECT_EQ(of("out_f32.r4.10"), 1);
  EXPECT_EQ(of("b3.out_f32.10"), 1);
  EXPECT_EQ(of("x.2"), std::nullopt);
  EXPECT_THROW(of("out_f3.1"), UsageError);
}

TEST(Tolerance, IsNeverWidenedSenselessly) {
  EXPECT_EQ(widened(1e-12, 1), 1e-12);
  EXPECT_EQ(widened(0.125, 4), 0.5);
  EXPECT_LT(widened(0.5, 4), 1);
  EXPECT_EQ(widened(0, 4), 0);
}

TEST(Tolerance, IsWidenedForFp32AloneUnlessAllAre) {
  const CheckOptions cpu;
  EXPECT_EQ(cpu.slack_of("f64"), 1);
  EXPECT_EQ(cpu.slack_of("f32"), 4);
  EXPECT_EQ(cpu.slack_of("bf16"), 1);
  const CheckOptions all{.slack = 10, .other_slack = 10};
  for (const char* dtype : {"f64", "f32", "bf16"})
    EXPECT_EQ(all.slack_of(dtype), 10);
}

TEST(Findings, OfNothingAreNoSuccess) {
  const Findings findings;
  EXPECT_FALSE(findings.passed());
  EXPECT_THAT(findings.reason(), HasSubstr("nothing"));
}

TEST(Findings, KeepTheWorstByShareOfItsTolerance) {
  Findings findings;
  findings.add("a", 1e-3, 1e-2);
  findings.add("b", 2e-9, 1e-8);
  findings.add("c", 0, 0);
  EXPECT_TRUE(findings.passed());
  EXPECT_EQ(findings.worst().tensor, "b");
  EXPECT_EQ(findings.reason(), "");
  findings.add("d", 2, 1);
  EXPECT_FALSE(findings.passed());
  EXPECT_THAT(findings.reason(), HasSubstr("d deviates by 2"));
}

TEST(Findings, NothingIsWorseThanNotANumber) {
  Findings findings;
  findings.add("a", kNan, 1);
  findings.add("b", kInf, 1);
  EXPECT_FALSE(findings.passed());
  EXPECT_EQ(findings.worst().tensor, "a");
  Findings other;
  other.add("b", 5, 1);
  other.add("a", kNan, 1);
  EXPECT_EQ(other.worst().tensor, "a");
}

TEST(Findings, FailWithoutNumbersToo) {
  Findings findings;
  findings.add("a", 0, 1);
  findings.fail("no tensor b");
  findings.fail("no tensor c");
  EXPECT_FALSE(findings.passed());
  EXPECT_EQ(findings.reason(), "no tensor b");
}

}  // namespace
}  // namespace canzona::tests::compare_test

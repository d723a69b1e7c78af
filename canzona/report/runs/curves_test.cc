#include "canzona/report/runs/line_chart.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "canzona/report/runs/test_runs.h"

namespace canzona::curves_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Points line(const std::vector<double>& values) {
  Points points;
  for (const double value : values)
    points.push_back({static_cast<double>(points.size()), value});
  return points;
}

TEST(Curves, LeaveOutWhatIsNotFinite) {
  TrainingRun run = make_run({.steps = 3});
  run.steps[1].loss = std::nan("");
  EXPECT_EQ(points_of(run, Axis::kTokens, loss_of).size(), 2u);
  EXPECT_EQ(points_of(run, Axis::kTokens, loss_of)[1].x, 3 * 2048);
  EXPECT_TRUE(points_of(run, Axis::kSteps, eval_loss_of).empty());
}

TEST(Curves, SmoothingKeepsStraightLinesAndTheirEnds) {
  std::vector<double> values;
  for (int i = 0; i < 300; ++i) values.push_back(5 - 0.01 * i);
  const Points smooth = smoothed(line(values));
  ASSERT_EQ(smooth.size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_NEAR(smooth[i].y, values[i], 1e-9);
  EXPECT_EQ(smoothed(line({5}))[0].y, 5);
  EXPECT_TRUE(smoothed({}).empty());
}

// A loss that falls ever faster at first: a straight line through its first
// points begins above all of them.
TEST(Curves, SmoothingStaysAmongWhatWasMeasured) {
  for (const double sign : {1.0, -1.0}) {
    std::vector<double> values;
    for (int i = 0; i < 400; ++i)
      values.push_back(sign * (i < 30 ? 11 - 0.005 * i * i : 6.5));
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    for (const Point& point : smoothed(line(values))) {
      EXPECT_LE(point.y, *high);
      EXPECT_GE(point.y, *low);
    }
  }
  for (const Point& point : smoothed(line({9, 9, 9, 9, 1, 9})))
    EXPECT_LE(point.y, 9);
}

TEST(Curves, SmoothingTakesNoiseAway) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(i % 2 == 0 ? 1 : -1);
  const Points smooth = smoothed(line(values));
  for (size_t i = 20; i < 380; ++i) EXPECT_LT(std::fabs(smooth[i].y), 0.1);
  EXPECT_LE(smoothed(line(std::vector<double>(100'000, 1))).size(), 2000u);
}

TEST(Curves, ThinningKeepsPeaks) {
  std::vector<double> values(10'000, 1);
  values[7777] = 100;
  values[1234] = -100;
  const Points few = thinned_peaks(line(values), 100);
  EXPECT_LE(few.size(), 100u);
  const auto [low, high] = std::minmax_element(
      few.begin(), few.end(),
      [](const Point& a, const Point& b) { return a.y < b.y; });
  EXPECT_EQ(low->y, -100);
  EXPECT_EQ(high->y, 100);
  EXPECT_TRUE(
      std::is_sorted(few.begin(), few.end(),
                     [](const Point& a, const Point& b) { return a.x < b.x; }));
  EXPECT_LE(thinned_mean(line(values), 100).size(), 100u);
  EXPECT_EQ(thinned_mean(line({1, 3, 5, 7}), 2)[1].y, 6);
  EXPECT_EQ(thinned_mean(line({1, 2}), 2).size(), 2u);
}

TEST(Curves, PositionsRead) {
  EXPECT_EQ(position_text(1200, Axis::kSteps), "1,200");
  EXPECT_EQ(position_text(75, Axis::kSeconds), "1:15");
  EXPECT_EQ(position_text(2.5, Axis::kSeconds), "2.5 s");
  EXPECT_EQ(position_text(1'230'000, Axis::kTokens), "1.23M");
}

TEST(LineChart, TicksAreRoundAndInside) {
  EXPECT_THAT(ticks_between(1.6, 5.4, 4), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(ticks_between(-1, 1, 2), ElementsAre(-1, 0, 1));
  EXPECT_THAT(ticks_between(3, 3, 2), ElementsAre(3));
  EXPECT_LE(ticks_between(1e17, 1e17 + 32, 5).size(), 11u);
}

LineChart chart_of(const Points& points) {
  LineChart chart;
  chart.title = "a <title>";
  chart.curves = {{"a & b", "curve s0", points, true, true, "label"}};
  return chart;
}

TEST(LineChart, EscapesAndNamesItsCurves) {
  const std::string svg = draw(chart_of(line({3, 2, 1})));
  EXPECT_THAT(svg, HasSubstr("a &lt;title&gt;"));
  EXPECT_THAT(svg, HasSubstr("a &amp; b 2"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(LineChart, DrawsNothingAndOnePointToo) {
  EXPECT_THAT(draw(chart_of({})), Not(HasSubstr("nan")));
  EXPECT_THAT(draw(chart_of(line({2}))), Not(HasSubstr("nan")));
  EXPECT_THAT(draw(chart_of(line({0, 0, 0}))), Not(HasSubstr("nan")));
  EXPECT_THAT(draw(chart_of(line({5, std::nextafter(5, 6)}))),
              Not(HasSubstr("nan")));
  EXPECT_THAT(draw(chart_of(line({1e99, -1e99}))), Not(HasSubstr("nan")));
  LineChart chart = chart_of(line({5, 4}));
  chart.clip = 1;
  EXPECT_THAT(draw(chart), Not(HasSubstr("nan")));
}

// Nothing is drawn above the frame: y of the clip is the top.
TEST(LineChart, ClipsWhereTheLineMeetsTheTop) {
  LineChart chart = chart_of(line({3, 1, 3}));
  chart.curves[0].dots = false;
  chart.clip = 2;
  chart.width = 58 + 200 + chart.right;
  const std::string svg = draw(chart);
  // Half way between the points, at the top of the frame.
  EXPECT_THAT(svg, HasSubstr("M108 22L158 "));
  EXPECT_THAT(svg, HasSubstr("L208 22\""));
}

}  // namespace
}  // namespace canzona::curves_test

#include "canzona/report/runs/run.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "canzona/report/runs/test_runs.h"

namespace canzona::report::curves_test {
namespace {

Points line(const std::vector<double>& values) {
  Points points;
  for (const double value : values)
    points.push_back({static_cast<double>(points.size()), 0, 0, value});
  return points;
}

TEST(Curves, LeaveOutWhatIsNotFinite) {
  TrainingRun run = make_run({.steps = 3});
  run.steps[1].loss = std::nan("");
  EXPECT_EQ(points_of(run, loss_of).size(), 2u);
  EXPECT_EQ(points_of(run, loss_of)[1].tokens, 3 * 2048);
  EXPECT_TRUE(points_of(run, eval_loss_of).empty());
}

TEST(Curves, SmoothingKeepsStraightLinesAndTheirEnds) {
  std::vector<double> values;
  for (int i = 0; i < 300; ++i) values.push_back(5 - 0.01 * i);
  const Points smooth = smoothed(line(values));
  ASSERT_EQ(smooth.size(), 300u);
  for (size_t i = 0; i < 300; ++i)
    EXPECT_NEAR(smooth[i].value, values[i], 1e-9);
  EXPECT_EQ(smoothed(line({5}))[0].value, 5);
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
      EXPECT_LE(point.value, *high);
      EXPECT_GE(point.value, *low);
    }
  }
  for (const Point& point : smoothed(line({9, 9, 9, 9, 1, 9})))
    EXPECT_LE(point.value, 9);
}

TEST(Curves, SmoothingTakesNoiseAway) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(i % 2 == 0 ? 1 : -1);
  const Points smooth = smoothed(line(values));
  for (size_t i = 20; i < 380; ++i) EXPECT_LT(std::fabs(smooth[i].value), 0.1);
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
      [](const Point& a, const Point& b) { return a.value < b.value; });
  EXPECT_EQ(low->value, -100);
  EXPECT_EQ(high->value, 100);
  EXPECT_TRUE(std::is_sorted(
      few.begin(), few.end(),
      [](const Point& a, const Point& b) { return a.steps < b.steps; }));
  EXPECT_LE(thinned_mean(line(values), 100).size(), 100u);
  EXPECT_EQ(thinned_mean(line({1, 3, 5, 7}), 2)[1].value, 6);
  EXPECT_EQ(thinned_mean(line({1, 2}), 2).size(), 2u);
}

}  // namespace
}  // namespace canzona::report::curves_test

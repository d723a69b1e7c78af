// Curves of runs, and charts of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/report/html.h"
#include "canzona/report/runs/run.h"

namespace canzona {

// The series of a run's steps as they are drawn: points, smoothed, and few
// enough.
//
//   Points raw = points_of(run, Axis::kSteps, loss_of);
//   Points line = smoothed(raw);

enum class Axis { kSteps, kTokens, kSeconds };
inline constexpr Axis kAxes[] = {Axis::kSteps, Axis::kTokens, Axis::kSeconds};
const char* axis_name(Axis axis);
double position_of(const StepMetrics& step, Axis axis);
// A position as text: "120", "1.23M", "2:05".
std::string position_text(double position, Axis axis);

struct Point {
  double x = 0;
  double y = 0;
};
using Points = std::vector<Point>;

// Steps whose figure is not finite, or above 1e100, are left out.
using Figure = double (*)(const StepMetrics&);
Points points_of(const TrainingRun& run, Axis axis, Figure figure);

double loss_of(const StepMetrics& step);
double eval_loss_of(const StepMetrics& step);  // NaN where it was not measured

// At every point the line that fits its neighbours best, a fortieth of all to
// either side: noise goes, and what falls is not shown too late, as by a
// running mean. Never above or below all of those neighbours.
Points smoothed(const Points& points);

// At most `most` points: of each run of them the lowest and the highest, so
// that no peak is lost; or their mean.
Points thinned_peaks(const Points& points, size_t most);
Points thinned_mean(const Points& points, size_t most);

// Curves over a common horizontal axis, named where they end; columns that tell
// the values under the pointer.
//
//   LineChart chart{.title = "Loss", .axis = Axis::kSteps, .curves = …};
//   std::string svg = draw(chart);

struct Curve {
  std::string name;
  std::string css;  // "curve s0"
  Points points;
  bool dots = false;    // a mark at every point
  bool probed = false;  // its values show under the pointer
  // Stands at its end, after its last value; empty: nothing does.
  std::string label = {};
};

struct LineChart {
  std::string title;
  std::string unit;  // of the vertical axis, "" for none
  Axis axis = Axis::kSteps;
  std::vector<Curve> curves;
  double width = kDrawingWidth;
  double height = 300;
  double right = 150;      // room for the labels at the end
  bool from_zero = false;  // the vertical axis begins at 0
  // Nothing above this value is drawn; 0: all is.
  double clip = 0;
  // Writes a value: "4.123", "12.3K".
  std::string (*text)(double) = nullptr;
};

std::string draw(const LineChart& chart);

// Round numbers from `low` to `high`, about `count`.
std::vector<double> ticks_between(double low, double high, int count);

}  // namespace canzona

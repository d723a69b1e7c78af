// What is drawn of a run's steps: points, smoothed, and few enough to draw.
//
//   Points raw = points_of(run, Axis::kSteps, loss_of);
//   Points line = smoothed(raw);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/report/runs/run.h"

namespace canzona {

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

}  // namespace canzona

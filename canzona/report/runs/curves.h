// The series of a run's steps as they are drawn: points, smoothed, and few
// enough.
//
//   Points raw = points_of(run, loss_of);
//   Points line = smoothed(raw);
#pragma once

#include <vector>

#include "canzona/report/runs/run.h"

namespace canzona {

// A value, and where it lies on each of the axes over which it is drawn.
struct Point {
  double steps = 0;
  double tokens = 0;
  double seconds = 0;
  double value = 0;
};
using Points = std::vector<Point>;

// Steps whose figure is not finite, or above 1e100, are left out.
using Figure = double (*)(const StepMetrics&);
Points points_of(const TrainingRun& run, Figure figure);

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

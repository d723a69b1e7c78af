// Summarizes the seconds of many steps.
//
//   StepTimes times = summarize_steps(seconds, /*first=*/2, /*period=*/10);
//
// Rules that refresh something every `period` steps have that many kinds of
// steps. The mean is taken over a period, with the median of each kind, so that
// it does not depend on how many of a kind were measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace canzona::measure {

struct StepTimes {
  double median = 0;
  double mean = 0;    // over a period
  double worst = 0;   // of the slowest kind of step
  double spread = 0;  // the longest minus the shortest
  bool covers_period = true;
};

double median_of(std::vector<double> values);

// `first` is the number of the first step, counted from 1.
StepTimes summarize_steps(std::span<const double> seconds, int64_t first,
                          int64_t period);

// Returns the element-wise maximum of all rows.
std::vector<double> slowest(const std::vector<std::vector<double>>& rows);

}  // namespace canzona::measure

#include "canzona/measure/step_times.h"

#include <algorithm>
#include <map>

namespace canzona::measure {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

StepTimes summarize_steps(std::span<const double> seconds, int64_t first,
                          int64_t period) {
  StepTimes times;
  times.median = median_of({seconds.begin(), seconds.end()});
  std::map<int64_t, std::vector<double>> kinds;
  for (size_t i = 0; i < seconds.size(); ++i)
    kinds[(first + static_cast<int64_t>(i)) % period].push_back(seconds[i]);
  for (const auto& [kind, of_kind] : kinds) {
    const double median = median_of(of_kind);
    times.mean += median / static_cast<double>(kinds.size());
    times.worst = std::max(times.worst, median);
  }
  times.covers_period = std::ssize(kinds) == period;
  if (seconds.empty()) return times;
  const auto [least, most] = std::ranges::minmax(seconds);
  times.spread = most - least;
  return times;
}

std::vector<double> slowest(const std::vector<std::vector<double>>& rows) {
  std::vector<double> most;
  for (const std::vector<double>& row : rows) {
    if (most.empty()) most.resize(row.size(), 0);
    for (size_t i = 0; i < row.size(); ++i) most[i] = std::max(most[i], row[i]);
  }
  return most;
}

}  // namespace canzona::measure

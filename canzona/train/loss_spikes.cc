#include "canzona/train/loss_spikes.h"

#include <algorithm>
#include <cmath>

namespace canzona {

std::optional<double> spike_over(const std::vector<double>& recent, double loss,
                                 double factor) {
  if (factor == 0 || recent.size() < kLeastRecentLosses) return std::nullopt;
  std::vector<double> sorted = recent;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  // A factor is meaningless unless the median is positive.
  if (!(median > 0 && loss > factor * median)) return std::nullopt;
  return median;
}

void remember_loss(double loss, std::vector<double>& recent) {
  if (!std::isfinite(loss)) return;
  if (recent.size() >= kMostRecentLosses) recent.erase(recent.begin());
  recent.push_back(loss);
}

}  // namespace canzona

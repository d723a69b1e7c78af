#include "canzona/sim/rank_spread.h"

#include <cmath>

namespace canzona {
namespace {

// The inverse of the normal distribution above its median, by Newton's method
// on erfc, which is monotonic and convex there.
double normal_quantile(double above) {
  double x = 0;
  constexpr int kMostSteps = 60;
  constexpr double kNormalDensity = 0.39894228040143268;  // 1 / sqrt(2 pi)
  for (int i = 0; i < kMostSteps; ++i) {
    const double tail = 0.5 * std::erfc(x / std::sqrt(2.0));
    const double step =
        (tail - above) / (kNormalDensity * std::exp(-x * x / 2));
    x += step;
    if (std::abs(step) < 1e-13 * (1 + x)) break;
  }
  return x;
}

}  // namespace

double expected_largest(int64_t count) {
  if (count <= 1) return 0;
  const auto n = static_cast<double>(count);
  return normal_quantile(0.625 / (n + 0.25));
}

double slowest_of(int64_t count, double spread) {
  return spread > 0 ? 1 + spread * expected_largest(count) : 1;
}

}  // namespace canzona

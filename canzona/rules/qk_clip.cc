#include "canzona/rules/qk_clip.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::rules {
namespace {

void check(std::span<const double> largest, int64_t groups,
           const QkClip& clip) {
  if (!(clip.tau > 0))
    throw UsageError(
        cat("QK-clip: tau is ", clip.tau, "; expected a number above 0"));
  if (!(clip.alpha >= 0 && clip.alpha <= 1))
    throw UsageError(cat("QK-clip: alpha is ", clip.alpha,
                         "; expected a number from 0 to 1"));
  if (groups < 1 || largest.empty() || std::ssize(largest) % groups != 0)
    throw UsageError(cat("QK-clip: ", groups, " keys do not divide ",
                         largest.size(), " query heads"));
  for (size_t head = 0; head < largest.size(); ++head)
    if (!std::isfinite(largest[head]))
      throw NumericalError(cat("the largest logit of head ", head, " is ",
                               largest[head], "; expected a finite number"));
}

}  // namespace

QkFactors qk_factors(std::span<const double> largest, int64_t groups,
                     const QkClip& clip) {
  check(largest, groups, clip);
  const size_t per_group = largest.size() / static_cast<size_t>(groups);
  QkFactors factors;
  for (size_t first = 0; first < largest.size(); first += per_group) {
    const auto heads = largest.subspan(first, per_group);
    const double most = *std::ranges::max_element(heads);
    const auto gamma = [&](double logit) {
      return logit > clip.tau ? clip.tau / logit : 1.0;
    };
    for (const double own : heads) {
      const double g = gamma(clip.queries_alone ? own : most);
      factors.query_rope.push_back(g);
      factors.query.push_back(clip.queries_alone ? g : std::pow(g, clip.alpha));
    }
    factors.key.push_back(
        clip.queries_alone ? 1.0 : std::pow(gamma(most), 1 - clip.alpha));
  }
  return factors;
}

}  // namespace canzona::rules

#include "canzona/model/choose_token.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

struct Candidate {
  int32_t token;
  float logit;
};

std::vector<Candidate> candidates_of(std::span<const float> logits) {
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      throw NumericalError(cat("the logit of token ", i,
                               " is not finite: the weights, or what they "
                               "compute, are broken"));
    all.push_back({static_cast<int32_t>(i), logits[i]});
  }
  return all;
}

// Keeps the first of equal logits.
void keep_largest(int64_t count, std::vector<Candidate>& all) {
  if (count == 0 || std::cmp_greater_equal(count, all.size())) return;
  std::ranges::nth_element(
      all, all.begin() + count, [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
      });
  all.resize(static_cast<size_t>(count));
  std::ranges::sort(all, {}, &Candidate::token);
}

}  // namespace

int32_t choose_token(std::span<const float> logits, const TokenChoice& choice,
                     double chance) {
  std::vector<Candidate> all = candidates_of(logits);
  const Candidate largest =
      *std::ranges::max_element(all, {}, &Candidate::logit);
  if (choice.temperature == 0) return largest.token;
  keep_largest(choice.top_k, all);
  std::vector<double> sums;  // cumulative shares
  double sum = 0;
  for (const Candidate& candidate : all)
    sums.push_back(
        sum += std::exp((static_cast<double>(candidate.logit) - largest.logit) /
                        choice.temperature));
  const auto found = std::ranges::upper_bound(sums, chance * sum);
  const auto place = std::min(found - sums.begin(), std::ssize(all) - 1);
  return all[static_cast<size_t>(place)].token;
}

}  // namespace canzona

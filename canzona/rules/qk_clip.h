// QK-clip: what rows of queries and keys are multiplied by after a step, where
// logits of attention have grown too large. After Kimi K2.
//
//   QkFactors f = qk_factors(std::array{250.0, 40.0, 90.0, 99.0}, 2, {});
//   f.query[0];   // 0.4^alpha, which the group's key makes up to 0.4
//   f.key[1];     // 1: no logit of this group exceeds tau
//
// A pure function of a layer's maxima: every rank computes the same factors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace canzona::rules {

struct QkClip {
  double tau = 100;
  double alpha = 0.5;  // the queries' share of the factor
  // Every query head is clipped by its own logits and no key changes; else the
  // queries that share a key are clipped together, with the key.
  bool queries_alone = false;
};

struct QkFactors {
  std::vector<double> query;  // by query head
  // Factors of parts of queries that meet a key which all heads share, and
  // which therefore stays as it is.
  std::vector<double> query_rope;
  std::vector<double> key;  // by group of query heads
};

// `largest` has the largest logit of every query head, as it enters the
// softmax. Throws NumericalError naming a head whose logit is not finite, and
// UsageError for settings out of range.
QkFactors qk_factors(std::span<const double> largest, int64_t groups,
                     const QkClip& clip);

}  // namespace canzona::rules

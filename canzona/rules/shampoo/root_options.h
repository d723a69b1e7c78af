// How inverse roots are computed; roots.h does it.
#pragma once

#include <cstdint>

namespace canzona {

enum class RootMethod { kEigen, kNewton, kHigher };

// Which power of a matrix is wanted: A to the minus q/p.
struct InversePower {
  int64_t p = 4;
  int64_t q = 1;

  double exponent() const {
    return static_cast<double>(q) / static_cast<double>(p);
  }
};

// All methods work on A + d·I. For kHigher d is at least abs_epsilon, for the
// others at least epsilon; for all of them it is at least rel_epsilon·|A|_F.
struct RootOptions {
  RootMethod method = RootMethod::kEigen;
  double epsilon = 0;
  double rel_epsilon = 0;
  double abs_epsilon = 0;
  // Of kEigen: whether d is added to the matrix or to its eigenvalues, after
  // negative ones have been lifted to 0.
  bool perturb_before = true;
  // Of the coupled iterations: they end when max |M - I| is at most the
  // tolerance. kHigher sums `order` terms of a series per iteration; two of
  // them are Newton's method.
  int64_t max_iterations = 100;
  double tolerance = 1e-6;
  int order = 3;
};

}  // namespace canzona

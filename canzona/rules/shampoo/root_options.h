// How inverse roots are computed; roots.h does it.
#pragma once

#include <cstdint>

namespace canzona {

enum class RootMethod { kEigen, kPseudo, kNewton, kHigher, kCans };

// Which power of a matrix is wanted: A to the minus q/p.
struct InversePower {
  int64_t p = 4;
  int64_t q = 1;

  double exponent() const {
    return static_cast<double>(q) / static_cast<double>(p);
  }
};

// All methods but kPseudo, which works on A itself, work on A + d·I. For
// kHigher d is at least abs_epsilon, for the others at least epsilon; for all
// of them it is at least rel_epsilon·|A|_F. kCans gives A^(-1/2) alone.
struct RootOptions {
  RootMethod method = RootMethod::kEigen;
  double epsilon = 0;
  double rel_epsilon = 0;
  double abs_epsilon = 0;
  // Of kEigen: whether d is added to the matrix or to its eigenvalues, after
  // negative ones have been lifted to 0.
  bool perturb_before = true;
  // Of kPseudo: eigenvalues up to the larger of rank_rtol times the largest one
  // and rank_atol count as 0, and so do their inverse powers. Below 0: as many
  // units of rounding as the matrix has rows.
  double rank_rtol = -1;
  double rank_atol = 0;
  // Of the coupled iterations: they end when max |M - I| is at most the
  // tolerance. kHigher sums `order` terms of a series per iteration; two of
  // them are Newton's method.
  int64_t max_iterations = 100;
  double tolerance = 1e-6;
  int order = 3;
};

}  // namespace canzona

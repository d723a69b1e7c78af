// The steps of CANS, an iteration for the inverse square root, as numbers: the
// rule computes by them, and fixtures are compared with them.
#pragma once

#include <span>

namespace canzona {

// CANS: Y and Z are polynomials of B/s, s being an upper bound of B's
// eigenvalues and at least kCansLeastSize. Each step takes P = Z·Y, whose
// eigenvalues go to 1, Y to bY + aYP and Z to bZ + aPZ, so that Z ends as
// (B/s)^(-1/2).
struct CansStep {
  double b = 0;
  double a = 0;
};
std::span<const CansStep> cans_steps();
inline constexpr double kCansLeastSize = 1e-12;

}  // namespace canzona

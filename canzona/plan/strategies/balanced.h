// Our strategy: plans owners over dp × tp × ep together. Items that are alike
// form classes; search/ deals classes to ranks and ranks to homes; then the
// tensors of each class are chosen so that no home exceeds its share of bytes
// in any bucket.
#pragma once

#include "canzona/plan/layout/problem.h"

namespace canzona {

// Allows a home 1.3 times the even share of a bucket.
inline constexpr double kDefaultAlpha = 3.0 / 13.0;
void assign_balanced(const Problem& p, Assignment& a);

}  // namespace canzona

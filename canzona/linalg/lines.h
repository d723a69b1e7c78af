// The lines of a matrix, its rows or its columns: their norms, and factors by
// which they are multiplied. Norms, factors and moments of a batch are
// count x 1 x lines.
//
//   engine.line_norms(norms, u, Lines::kRows);
//   engine.line_factors(factors, norms, {.kind = LineFactors::Kind::kEven});
//   engine.scale_rows(x, u, factors);
//
// A LineFactors says how the factors f_i follow from the norms r_i, with
// R = sqrt(sum of r_i²) the norm of the matrix. Unless `first`, links form a
// chain: r_i is the norm times the factor so far, which is multiplied by f_i.
// All is computed in fp64 and rounded once; a quotient by 0 is 0.
#pragma once

#include <cstdint>

#include "canzona/linalg/matrix.h"
#include "canzona/linalg/stages.h"

namespace canzona {

enum class Lines { kRows, kColumns };

struct LineFactors {
  enum class Kind {
    kEven,     // f_i = R / sqrt(lines) / max(r_i, floor): all norms equal
    kWhole,    // f = target / max(R, floor), or 0 where R < floor (zero_below);
               // with `other`, the target is the norm of those lines
    kMoments,  // V_i = keep·V_i + add·r_i²/length, d_i the root of V_i, then
               // f_i = R / max(sqrt(sum of (r_i/d_i)²), floor) / d_i
    kMoment,   // V = keep·V + add·|other|²; f = R / d with R of the norms alone
  };
  Kind kind = Kind::kWhole;
  bool first = true;
  double target = 0;
  double floor = 0;
  bool zero_below = false;
  double keep = 0;
  double add = 1;
  double length = 1;
  // d is sqrt(V) + epsilon, or, clamped, sqrt(max(V, epsilon)).
  double epsilon = 0;
  bool clamp = false;
};

// An update o whose lines are multiplied by factors, u = f·o, and how it moves
// weights p. With `lengths`, one number g per row, moved weights are pulled
// back: p - (p - g·moved p).
struct LineUpdate {
  Matrices update{};  // may be overwritten
  ConstMatrices factors{};
  Lines lines = Lines::kRows;
  Apply apply{};
  ConstMatrices lengths{};
};

// Numbers per row of an update o and of weights p: |o_i|, |p_i| and their inner
// product.
struct RowSums {
  Matrices update{};
  Matrices weights{};
  Matrices dots{};
};

}  // namespace canzona

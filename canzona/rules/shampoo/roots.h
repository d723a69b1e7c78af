// Inverse roots of symmetric, positive semi-definite matrices.
//
//   inverse_roots(engine, x, a, {.p = 4}, options, statuses);
//   if (!statuses[i].succeeded) …  // x.at(i) holds nothing of use
//
// Five methods: by eigenvectors, of A damped or, a pseudo-inverse, of A without
// the eigenvalues that count as 0; by coupled Newton iteration, which keeps X
// and M = A·X^p and drives M to the identity; by the same iteration with more
// terms of the series, which gives A^(-q/p) for any fraction; and, for
// A^(-1/2), by ten cubic polynomials chosen beforehand (CANS).
// The last three multiply commuting symmetric matrices only: one triangle is
// computed (CANS computes P whole), and X is exactly symmetric.
//
// In fp32 or fp64, of any number of matrices; what one gives does not depend on
// the others: an iteration goes on until the last of them has its root, and
// each keeps the X of its own last iteration. Scratch comes from the engine's
// arena. Matrices must be finite.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/shampoo/root_options.h"

namespace canzona {

struct RootStatus {
  bool succeeded = true;
  const char* reason = "";  // of a failure, for messages
  int64_t iterations = 0;
  double error = 0;  // max |M - I| of a coupled iteration
};

// X = (A + d·I)^(-q/p). X and A are different; both are square and contiguous.
// A coupled iteration that reaches its limit succeeds if it came near; Newton
// takes q = 1 only, CANS q/p = 1/2. One status per matrix.
void inverse_roots(Engine& engine, Matrices x, ConstMatrices a,
                   InversePower power, const RootOptions& options,
                   std::span<RootStatus> statuses);

}  // namespace canzona

// X and M = B·X^p of a batch of matrices B, while M is driven to the identity.
//
//   CoupledIteration iteration(engine, b, z, 4);  // X = z^(1/p)·I
//   while (…iteration.errors()…) iteration.advance(2);
//
// Both are polynomials of B, so products are symmetric and one triangle is
// computed. Lives in a scope of the engine's arena.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/together.h"

namespace canzona {

class CoupledIteration {
 public:
  CoupledIteration(Engine& engine, ConstMatrices b, std::span<const double> z,
                   int64_t p);

  const Matrices& x() const { return x_; }
  // max |M - I| of each.
  const PerTensor<double>& errors() const { return errors_; }

  // X = X·P and M = M·P^p with P the first `order` terms of the series of
  // M^(-1/p) about the identity.
  void advance(int order);

  // target = base^power; both outlive the call, target is another matrix.
  void raise(Matrices& target, const Matrices& base, int64_t power);

  // The largest entries of B·X^p - I for these B and X, from scratch.
  PerTensor<double> true_errors(ConstMatrices b, Matrices x);

 private:
  Matrices like(ConstMatrices b);
  void multiply(Matrices& target, const Matrices& by);
  void measure();
  void sum_series(int order);

  Engine& engine_;
  int64_t p_;
  Matrices x_, m_, residual_, factor_, spare_;
  PerTensor<double> errors_;
};

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

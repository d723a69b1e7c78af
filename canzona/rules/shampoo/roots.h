// Iterates X and M = B·X^p for a batch of matrices B, driving M to the
// identity.
//
//   CoupledIteration iteration(engine, b, z, 4);  // X = z^(1/p)·I
//   while (…iteration.errors()…) iteration.advance(2);
//
// Both are polynomials of B, so products are symmetric and only one triangle is
// computed. Requires an open scope of the engine's arena.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/together.h"

namespace canzona::rules {

class CoupledIteration {
 public:
  CoupledIteration(Engine& engine, ConstMatrices b, std::span<const double> z,
                   int64_t p);

  const Matrices& x() const { return x_; }
  // max |M - I| of each matrix.
  const PerTensor<double>& errors() const { return errors_; }

  // X = X·P and M = M·P^p with P the first `order` terms of the series of
  // M^(-1/p) about the identity.
  void advance(int order);

  // target = base^power; both outlive the call and must be different matrices.
  void raise(Matrices& target, const Matrices& base, int64_t power);

  // The largest entries of B·X^p - I for these B and X, computed from scratch.
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
//   if (!statuses[i].succeeded) …  // x.at(i) is unspecified
//
// Five methods: by eigenvectors, either of A with damping or, as a
// pseudo-inverse, of A without the eigenvalues that count as 0; by coupled
// Newton iteration, which keeps X and M = A·X^p and drives M to the identity;
// by the same iteration with more terms of the series, which computes A^(-q/p)
// for any fraction; and, for A^(-1/2), by ten cubic polynomials chosen in
// advance (CANS). The last three multiply only commuting symmetric matrices:
// one triangle is computed (CANS computes all of P), and X is exactly
// symmetric.
//
// Computes in fp32 or fp64, for any number of matrices. Each result is
// independent of the others: an iteration continues until the last matrix has
// its root, and each keeps the X of its own last iteration. Scratch comes from
// the engine's arena. Matrices must be finite.

struct RootStatus {
  bool succeeded = true;
  const char* reason = "";  // of a failure, for messages
  int64_t iterations = 0;
  double error = 0;  // max |M - I| of a coupled iteration
};

// X = (A + d·I)^(-q/p). X and A are different; both are square and contiguous.
// A coupled iteration that reaches its limit succeeds if it came close; Newton
// requires q = 1, CANS q/p = 1/2. One status per matrix.
void inverse_roots(Engine& engine, Matrices x, ConstMatrices a,
                   InversePower power, const RootOptions& options,
                   std::span<RootStatus> statuses);

}  // namespace canzona::rules

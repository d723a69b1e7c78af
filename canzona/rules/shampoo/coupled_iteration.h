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

}  // namespace canzona

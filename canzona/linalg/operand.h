// The algebra of Newton–Schulz: a wide matrix X (rows <= cols) and symmetric
// matrices that are polynomials of X·Xᵀ. Such matrices commute, so products
// of them are symmetric and half of each needs to be computed.
//
//   Algebra& algebra = engine.algebra(DType::kBf16);
//   Operand x = algebra.wide(arena, m, n), r = algebra.symmetric(arena, m);
//   algebra.load(x, {.source = u, .transpose = tall});
//   algebra.gram(r, x, Half::kTriangle);                // R = XXᵀ
//   algebra.polynomial(p, r, a, b, c, Half::kTriangle); // P = aI + bR + cR²
//   algebra.multiply(y, p, x);                          // Y = PX
//
// Operands stay in the device's own format between products (16-bit tiles, or
// plain rows), which only the algebra that made them can read. An operand
// means scale·stored + identity·I: the norm goes into `scale`, and the
// identity is kept out of 16-bit storage, where it would drown the rest.
#pragma once

#include <cstdint>

#include "canzona/linalg/arena.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/stages.h"

namespace canzona {

struct Operand {
  std::byte* storage = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  double scale = 1;     // of wide operands
  double identity = 0;  // of symmetric operands
};

// Where a wide operand comes from: a matrix as it is, or momentum and gradient
// in one pass (the momentum is updated). Transposed if it has more rows than
// columns; nothing but this pass ever sees the transpose.
struct Load {
  ConstMatrices source{};  // the blend itself, or the gradient
  Matrices momentum{};     // no data: take the source as it is
  Blend blend{};
  bool transpose = false;
  double prescale = 1;  // multiplied in before rounding
};

// Where the last product goes, transposed back: into `out`; or, with `apply`,
// into weights, each p = (p·keep_before - step·o)·keep_after.
struct Store {
  Matrices out{};
  const Apply* apply = nullptr;
  bool transpose = false;
};

enum class Half { kFull, kTriangle };

// One matrix at a time, one thread at a time. No function allocates beyond the
// arena. All results are exactly symmetric where they are symmetric.
class Algebra {
 public:
  virtual ~Algebra() = default;

  virtual Operand wide(Arena& arena, int64_t rows, int64_t cols) = 0;
  virtual Operand symmetric(Arena& arena, int64_t rows) = 0;

  // Fills x with the source, scale 1, and returns the Frobenius norm of the
  // values as stored: squares are added in fp64, of scaled values where they
  // would leave its range, in an order that only the shape decides. Not finite
  // if a value is not.
  virtual double load(Operand& x, const Load& load) = 0;

  // R = scale²·X·Xᵀ; identity 0.
  virtual void gram(Operand& r, const Operand& x, Half half) = 0;
  // P = aI + bR + cR² for an R without identity; no product if c is 0.
  virtual void polynomial(Operand& p, const Operand& r, double a, double b,
                          double c, Half half) = 0;
  // D = A·B. D is neither A nor B.
  virtual void commuting_product(Operand& d, const Operand& a,
                                 const Operand& b) = 0;
  // U = P·R·P for an R without identity; U and scratch are others.
  virtual void sandwich(Operand& u, const Operand& p, const Operand& r,
                        Operand& scratch) = 0;
  // Y = Q·X; scale 1.
  virtual void multiply(Operand& y, const Operand& q, const Operand& x) = 0;
  // The same into plain memory.
  virtual void multiply_into(const Store& store, const Operand& q,
                             const Operand& x) = 0;
  // |R|_F for an R without identity, and R = factor·R.
  virtual double norm(const Operand& r) = 0;
  virtual void rescale(Operand& r, double factor) = 0;
};

}  // namespace canzona

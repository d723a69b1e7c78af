// The algebra of Newton–Schulz: a wide matrix X (rows <= cols) and symmetric
// matrices that are polynomials of X·Xᵀ. Such matrices commute, so products
// of them are symmetric and half of each needs to be computed.
//
//   Algebra& algebra = engine.algebra(DType::kBf16);
//   Operand x = algebra.wide(arena, m, n), r = algebra.symmetric(arena, m);
//   algebra.load_normalized(x, {.source = u, .transpose = tall}, {});
//   algebra.gram(r, x, Half::kTriangle);                // R = XXᵀ
//   algebra.polynomial(p, r, a, b, c, Half::kTriangle); // P = aI + bR + cR²
//   algebra.multiply(y, p, x);                          // Y = PX
//
// An operand is a batch of `count` matrices of equal shape; what one of them
// gives does not depend on the others. Operands stay in the device's own format
// between products (16-bit tiles, or plain rows), which only the algebra that
// made them can read. No norm comes back to the caller: a device may still be
// at work on it.
#pragma once

#include <cstdint>

#include "canzona/linalg/matrix.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/stages.h"

namespace canzona {

struct Operand {
  std::byte* storage = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 1;
  bool tall = false;  // of a wide operand: it came transposed
  // An operand means scale·stored + identity·I: the identity is kept out of
  // bf16, where it would drown the rest, and the norm, on CPUs, goes into the
  // scale.
  double scale = 1;     // of wide operands
  double identity = 0;  // of symmetric operands
};

// A wide operand is loaded from a matrix as it is, or from momentum and
// gradient in one pass (the momentum is updated). Transposed if it has more
// rows than columns; nothing but this pass ever sees the transpose.
struct Load {
  ConstMatrices source{};  // the blend itself, or the gradient
  Matrices momentum{};     // no data: take the source as it is
  Blend blend{};
  bool transpose = false;
  double prescale = 1;  // multiplied in before rounding
};

// X is divided by max(factor·|X|_F, epsilon), or by factor·|X|_F + epsilon; a
// matrix of zeros stays one.
struct Normalization {
  double factor = 1;
  double epsilon = 0;
  bool add_epsilon = false;
};

// The last product is stored, transposed back, into `out`; or, with `apply`,
// into weights, each p = (p·keep_before - step·o)·keep_after, and, rounded to
// bf16, into `rounded` (null, or one place per matrix).
struct Store {
  Matrices out{};
  const Apply* apply = nullptr;
  bool transpose = false;
  uint16_t* const* rounded = nullptr;
};

enum class Half { kFull, kTriangle };

// The products that read an operand: all, or multiply and multiply_into alone.
// The latter can take an identity that is kept out of 16-bit storage.
enum class Readers { kAll, kMultiply };

// One thread at a time. No function allocates beyond the arena. All results are
// exactly symmetric where they are symmetric. Operands of a call have one
// count, which is at most the engine's batch_width().
class Algebra {
 public:
  virtual ~Algebra() = default;

  virtual Operand wide(Arena& arena, int64_t rows, int64_t cols,
                       int64_t count = 1, bool tall = false) = 0;
  virtual Operand symmetric(Arena& arena, int64_t rows, int64_t count = 1) = 0;

  // Fills x, made with the same `tall`, with the source divided by its norm.
  // Squares are added in fp64, of scaled values where they would leave its
  // range, in an order that only the shape decides.
  virtual void load_normalized(Operand& x, const Load& load,
                               const Normalization& normalization) = 0;
  // X and its Gram matrix R, divided as if X had been by factor·sqrt(|R|_F): a
  // tighter bound of the largest singular value than |X|_F.
  virtual void normalize_by_gram(Operand& x, Operand& r, double factor) = 0;

  // R = X·Xᵀ.
  virtual void gram(Operand& r, const Operand& x, Half half) = 0;
  // P = aI + bR + cR² for a Gram matrix R; no product if c is 0.
  virtual void polynomial(Operand& p, const Operand& r, double a, double b,
                          double c, Half half,
                          Readers readers = Readers::kAll) = 0;
  // D = A·B. D is neither A nor B.
  virtual void commuting_product(Operand& d, const Operand& a,
                                 const Operand& b) = 0;
  // U = P·R·P for a Gram matrix R, which U is then; U and scratch are others.
  virtual void sandwich(Operand& u, const Operand& p, const Operand& r,
                        Operand& scratch) = 0;
  // Y = Q·X.
  virtual void multiply(Operand& y, const Operand& q, const Operand& x) = 0;
  // The same into plain memory.
  virtual void multiply_into(const Store& store, const Operand& q,
                             const Operand& x) = 0;
};

}  // namespace canzona

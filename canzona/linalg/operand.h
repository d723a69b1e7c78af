// The algebra of Newton–Schulz: a wide matrix X (rows <= cols) and symmetric
// matrices that are polynomials of X·Xᵀ. Such matrices commute, so products of
// them are symmetric and half of each needs to be computed.
//
//   Algebra& algebra = engine.algebra(DType::kBf16);
//   Operand x = algebra.wide(arena, m, n), r = algebra.symmetric(arena, m);
//   algebra.load_normalized(x, {.source = u, .transpose = tall}, {});
//   algebra.gram(r, x, Half::kTriangle);                // R = XXᵀ
//   algebra.polynomial(p, r, a, b, c, Half::kTriangle); // P = aI + bR + cR²
//   algebra.multiply(y, p, x);                          // Y = PX
//
// An operand is a batch of `count` matrices of equal shape; the result of one
// does not depend on the others. Operands stay in the device's own format
// between products (16-bit tiles, or plain rows), which only the algebra that
// made them can read. No norm is returned to the caller, because a device may
// still be working on it.
//
// The long side may be cut into strips. Then a Gram matrix is the sum of those
// of the strips, and the square of the norm is the sum of theirs, both added in
// the order of a tree (base/sum_order.h); everything else stays the same. So
// engines that each have some neighbouring strips can compute one matrix
// together, bit for bit (SharedAlgebra).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "canzona/base/sum_order.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/stages.h"

namespace canzona {

// Cuts of the columns of a wide operand. Strip s begins at column at[s], a
// multiple of 64, and ends where the next one begins; the last one ends with
// the operand. There are 1, 2, 4 or 8 strips.
struct Strips {
  static constexpr int kMost = 8;
  static constexpr int kMostSums = TreeOrder::num_sums(kMost);
  int count = 1;
  std::array<int64_t, kMost> at{};

  int64_t end(int strip, int64_t cols) const {
    return strip + 1 < count ? at[static_cast<size_t>(strip) + 1] : cols;
  }
  int64_t begin(int strip) const { return at[static_cast<size_t>(strip)]; }
};

struct Operand {
  std::byte* storage = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 1;
  bool tall = false;  // wide operands: the source was transposed
  Strips strips{};    // wide operands only
  // Strips of a wider matrix, of which other engines have the rest
  // (SharedAlgebra).
  bool is_part = false;
  // An operand means scale·stored + identity·I: the identity is kept out of
  // bf16, where it would swamp the rest, and on CPUs the norm goes into the
  // scale.
  double scale = 1;     // of wide operands
  double identity = 0;  // of symmetric operands
};

// A wide operand is loaded from a matrix, or from momentum and gradient in one
// pass (the momentum is updated). It is transposed if it has more rows than
// columns; only this pass ever sees the transpose.
struct Load {
  ConstMatrices source{};  // the matrix itself, or the gradient
  Matrices momentum{};     // no data: use the source directly
  Blend blend{};
  bool transpose = false;
  double prescale = 1;  // applied before rounding
  // Rows of the source get equal norms first (LineFactors::Kind::kEven), if the
  // algebra loads_even_rows().
  bool even_rows = false;
  double even_floor = 0;
  // The blend is rounded to bf16 first, as if it had been sent, if the algebra
  // rounds_as_sent().
  bool as_sent = false;
};

// X is divided by max(factor·|X|_F, epsilon), or by factor·|X|_F + epsilon; a
// zero matrix stays zero.
struct Normalization {
  double factor = 1;
  double epsilon = 0;
  bool add_epsilon = false;
};

// The last product is stored, transposed back, into `out`; or, with `apply`,
// into weights, each p = (p·keep_before - step·o)·keep_after, and, rounded to
// bf16, into `rounded` (null, or one address per matrix). The product `as_sent`
// is rounded to bf16 before it is applied, if the algebra rounds_as_sent().
struct Store {
  Matrices out{};
  const Apply* apply = nullptr;
  bool transpose = false;
  uint16_t* const* rounded = nullptr;
  bool as_sent = false;
};

enum class Half { kFull, kTriangle };

// The products that read an operand: all, or only multiply and multiply_into.
// The latter can handle an identity that is kept out of 16-bit storage.
enum class Readers { kAll, kMultiply };

// A NormPart is what is known about the norm of a strip: the sum of squares in
// fp64, and the norm itself, which is correct even if squares leave the range
// of fp64.
struct NormPart {
  double squares = 0;
  double norm = 0;
};

class SharedAlgebra;

// One thread at a time. No function allocates beyond the arena. Symmetric
// results are exactly symmetric. Operands of a call must have the same count,
// at most the engine's batch_width().
class Algebra {
 public:
  virtual ~Algebra() = default;

  virtual Operand wide(Arena& arena, int64_t rows, int64_t cols,
                       int64_t count = 1, bool tall = false,
                       const Strips& strips = {}) = 0;
  virtual Operand symmetric(Arena& arena, int64_t rows, int64_t count = 1) = 0;

  // Fills x, made with the same `tall`, with the source divided by its norm.
  // Squares are added in fp64, of scaled values if they would leave its range,
  // in an order that depends only on the shape.
  virtual void load_normalized(Operand& x, const Load& load,
                               const Normalization& normalization) = 0;
  virtual bool loads_even_rows(const Operand&) const { return false; }
  virtual bool rounds_as_sent() const { return false; }
  // True if the source, the momentum and the weights of a Store with `apply`
  // may have their rows in groups (BasicMatrices::skips), unless they are made
  // even. All have the same groups, whose rows are a multiple of kGroupRows.
  virtual bool takes_row_groups() const { return false; }
  static constexpr int64_t kGroupRows = 16;
  // Divides X and its Gram matrix R as if X had been divided by
  // factor·sqrt(|R|_F), which bounds the largest singular value more tightly
  // than |X|_F.
  virtual void normalize_by_gram(Operand& x, Operand& r, double factor) = 0;

  // R = X·Xᵀ.
  virtual void gram(Operand& r, const Operand& x, Half half) = 0;
  // P = aI + bR + cR² for a Gram matrix R; no product if c is 0.
  virtual void polynomial(Operand& p, const Operand& r, double a, double b,
                          double c, Half half,
                          Readers readers = Readers::kAll) = 0;
  // D = A·B. D must be neither A nor B.
  virtual void commuting_product(Operand& d, const Operand& a,
                                 const Operand& b) = 0;
  // U = P·R·P for a Gram matrix R; U is then a Gram matrix, too. U and scratch
  // must be distinct from the others.
  virtual void sandwich(Operand& u, const Operand& p, const Operand& r,
                        Operand& scratch) = 0;
  // Y = Q·X.
  virtual void multiply(Operand& y, const Operand& q, const Operand& x) = 0;
  // The same into plain memory.
  virtual void multiply_into(const Store& store, const Operand& q,
                             const Operand& x) = 0;

  // The interface by which several engines compute a matrix together; null if
  // they cannot.
  virtual SharedAlgebra* shared() { return nullptr; }
};

// Newton–Schulz of one matrix by the members of a team, each with its own
// engine and the same number of neighbouring strips of the matrix. They
// exchange memory of the engines.
//
//   Operand x = shared.part(arena, m, width, tall, strips);
//   shared.load_parts(x, load, parts);            // each; all get all parts
//   shared.normalize(x, load, all, by, parts);    // each; false: once more
//   shared.gram_sum(sum, x, half);       // each; sums are added by the tree
//   shared.round_sum(piece, sum, count, x);       // each some of the total
//   shared.take_gram(r, rounded);                 // the head: R
//   …                                             // the head: Q by the algebra
//   shared.put_factor(factor, q, x);              // the head; all get it
//   shared.take_factor(q, x, factor, only_a);     // each: then Q·X
//
// The bits are those of a single engine that has all strips. A sum is the lower
// triangle of R, row by row, in fp32 (fp64 for fp64), before it is scaled and
// rounded; rounded, its numbers are those of the algebra. A factor is
// kFactorScalars and such a triangle.
class SharedAlgebra {
 public:
  static constexpr int64_t kFactorScalars = 4;  // fp64 each

  virtual ~SharedAlgebra() = default;

  virtual int64_t sum_bytes() const = 0;      // per number
  virtual int64_t rounded_bytes() const = 0;  // per number

  // Makes the wide operand of a member, which may have more rows than columns.
  virtual Operand part(Arena& arena, int64_t rows, int64_t cols, bool tall,
                       const Strips& strips) = 0;

  // Fills x with the unscaled source, and returns the norms of its strips.
  // Momentum is not supported.
  virtual void load_parts(Operand& x, const Load& load,
                          std::span<NormPart> parts) = 0;
  // Divides x by the norm that follows from all parts of all members. Returns
  // false, on all members alike, if the numbers are so large or small that x
  // has been reloaded, multiplied by a power of two: then `parts`, those of
  // this member, have been rewritten; they must be exchanged again, and the
  // next call returns true.
  virtual bool normalize(Operand& x, const Load& load,
                         std::span<const NormPart> all,
                         const Normalization& normalization,
                         std::span<NormPart> parts) = 0;
  virtual void gram_sum(std::byte* sum, const Operand& x, Half half) = 0;
  // Rounds `count` numbers of the sum, from anywhere in it.
  virtual void round_sum(std::byte* rounded, const std::byte* sum,
                         int64_t count, const Operand& x) = 0;
  virtual void take_gram(Operand& r, const std::byte* rounded) = 0;
  // Q is accompanied by what normalize_by_gram has done to x, the head's own,
  // if shares_gram_norm(). `only_a` is a if Q is one polynomial aI + bR + cR²
  // that was made for kMultiply, otherwise 0: a device may keep it out of Q.
  virtual bool shares_gram_norm() const = 0;
  virtual void put_factor(std::byte* factor, const Operand& q,
                          const Operand& x) = 0;
  virtual void take_factor(Operand& q, Operand& x, const std::byte* factor,
                           double only_a) = 0;
};

}  // namespace canzona

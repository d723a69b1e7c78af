// Common to the algebras of a CPU: one matrix at a time, norms that are
// available at once, and the norm kept in an operand's scale.
//
// An algebra passed to normalize_small_by() must outlive this one.
#pragma once

#include <memory>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/operand.h"

namespace canzona::linalg {

class CpuAlgebra : public Algebra, public SharedAlgebra {
 public:
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) final;
  void normalize_by_gram(Operand& x, Operand& r, double factor) final;
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) final;

  SharedAlgebra* shared() final { return this; }
  bool shares_gram_norm() const final { return true; }
  void load_parts(Operand& x, const Load& load,
                  std::span<NormPart> parts) final;
  bool normalize(Operand& x, const Load& load, std::span<const NormPart> all,
                 const Normalization& normalization,
                 std::span<NormPart> parts) final;

  // Fills x with the source, scale 1, and returns the Frobenius norm of the
  // values as stored; not finite if a value is not.
  double load(Operand& x, const Load& load);
  // Fills one strip of x, and sets the scale to 1.
  virtual NormPart load_strip(Operand& x, const Load& load, int strip) = 0;
  // norm() returns |R|_F for an R without identity; rescale() sets R =
  // factor·R.
  virtual double norm(const Operand& r) = 0;
  virtual void rescale(Operand& r, double factor) = 0;
  // multiply_into without the rounded copies.
  virtual void store_product(const Store& store, const Operand& q,
                             const Operand& x) = 0;

  // Makes small matrices be divided by their norm in that algebra's type,
  // before they are rounded to this one's: references do so, and a norm of
  // rounded values would give other bits. Scratch comes from the arena.
  void normalize_small_by(CpuAlgebra& exact, Arena& arena) {
    exact_ = &exact;
    arena_ = &arena;
  }

 private:
  CpuAlgebra* exact_ = nullptr;
  Arena* arena_ = nullptr;
};

// Newton–Schulz in fp32 or fp64 by BLAS on plain rows.
//
//   std::unique_ptr<CpuAlgebra> algebra = make_real_algebra<float>();
//
// Identities are added to the stored diagonal. A matrix that would have to be
// transposed is stored as it is, and products use it from the other side.
template <class Real>  // float or double
std::unique_ptr<CpuAlgebra> make_real_algebra();

// Newton–Schulz in bf16 with fp32 sums.
//
//   auto algebra = make_bf16_algebra(usable_bf16_kernels().front());
//   Operand x = algebra->wide(arena, 768, 2048);
//   double norm = algebra->load(x, {.source = gradient});
//
// Operands are stored as blocks of 32 x 32 (bf16/kernel.h) from the first
// product to the last; every product writes the formats that the next one
// reads, so nothing is ever repacked. All kernels share formats and loop
// orders, and differ only in how the sum of one block is formed.
//
// The algebra owns some scratch; operands are in the caller's arena. One thread
// at a time may use an algebra.

// Throws UsageError if this machine does not support the kernel.
std::unique_ptr<CpuAlgebra> make_bf16_algebra(Bf16Kernel kernel);

// Measures the peak rate of a kernel: the bare loop over packed blocks in the
// L2 cache, without anything before or after it. The difference to a real
// product is the cost of everything else.

// Returns 10⁹ operations per second of one thread.
double measure_packed_gflops(Bf16Kernel kernel);

}  // namespace canzona::linalg

// What the algebras of a CPU have in common: one matrix at a time, norms that
// the host sees at once, and the norm carried in an operand's scale.
//
// The algebra that is told to be exact for another one outlives it.
#pragma once

#include "canzona/linalg/operand.h"

namespace canzona {

class CpuAlgebra : public Algebra {
 public:
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) final;
  void normalize_by_gram(Operand& x, Operand& r, double factor) final;
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) final;

  // Fills x with the source, scale 1, and returns the Frobenius norm of the
  // values as stored. Not finite if a value is not.
  virtual double load(Operand& x, const Load& load) = 0;
  // |R|_F for an R without identity, and R = factor·R.
  virtual double norm(const Operand& r) = 0;
  virtual void rescale(Operand& r, double factor) = 0;
  // multiply_into without what is rounded.
  virtual void store_product(const Store& store, const Operand& q,
                             const Operand& x) = 0;

  // Small matrices are divided by their norm in that algebra's type, before
  // they are rounded to this one's: references do so, and get other bits from
  // a norm of rounded values. Scratch comes from the arena.
  void normalize_small_by(CpuAlgebra& exact, Arena& arena) {
    exact_ = &exact;
    arena_ = &arena;
  }

 private:
  CpuAlgebra* exact_ = nullptr;
  Arena* arena_ = nullptr;
};

}  // namespace canzona

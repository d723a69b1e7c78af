// Newton–Schulz: the orthogonal factor of a matrix, nearly: U·φ(Σ)·Vᵀ where φ
// is the composition of the steps' polynomials.
//
//   NewtonSchulzPlan plan = newton_schulz_plan(muon_facts, DType::kFp32);
//   orthogonalize(engine, plan, u, o);
//
// Works on any engine; what happens in which order is here, how a product is
// done is the engine's.
#pragma once

#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/muon/facts.h"

namespace canzona {

// The numbers it computes in, and where the Gram form starts anew.
struct NewtonSchulzNumbers {
  DType precision = DType::kFp32;
  std::vector<int64_t> restarts;  // after so many steps, ascending
};

// All that does not depend on the matrix.
struct NewtonSchulzPlan {
  const NewtonSchulzNumbers& numbers(MuonWay way) const {
    return way.small ? small : usual;
  }

  std::vector<Coefficients> steps;
  NewtonSchulzNumbers usual;
  NewtonSchulzNumbers small;  // of small matrices (MuonWay)
  bool schatten4 = false;
  Normalization normalization;
};

// For matrices of type `dtype`; fp64 ones are computed in fp64 throughout.
NewtonSchulzPlan newton_schulz_plan(const MuonFacts& facts, DType dtype);

// The steps are done in segments, each on a Gram matrix of its own: in the
// direct forms every step is one.
size_t num_segments(const NewtonSchulzPlan& plan, MuonWay way);
// The steps [begin, end) of a segment.
struct SegmentSteps {
  size_t begin = 0;
  size_t end = 0;
};
SegmentSteps segment_steps(const NewtonSchulzPlan& plan, MuonWay way,
                           size_t segment);

// Both halves of symmetric matrices in the standard form, else one.
Half half_of(MuonWay way);

// The symmetric matrices of a segment. The last three are there if it may have
// more than one step.
struct GramSpace {
  Operand r, q, p, spare, other;
};
GramSpace make_gram_space(Arena& arena, Algebra& algebra,
                          const NewtonSchulzPlan& plan, MuonWay way,
                          int64_t rows, int64_t count);
// g.q = the product of the polynomials of a segment, g.r being the Gram matrix
// before it.
void collect(Algebra& algebra, const NewtonSchulzPlan& plan, MuonWay way,
             size_t segment, GramSpace& g);

// From the Gram matrix of a normalized X in g.r to the last factor in g.q. X is
// what that factor multiplies then, y was its scratch; they may have swapped
// places.
void iterate_segments(Algebra& algebra, const NewtonSchulzPlan& plan,
                      MuonWay way, Operand& x, Operand& y, GramSpace& g);

// The cuts of a long side into that many strips, as operands have them.
Strips cuts_of(int64_t side, int strips);

// A batch, a part of it at a time: from where `load` says to where `store`
// says. `way` is what the facts say of the shape.
void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
                   const Load& load, const Store& store);

// A batch, each matrix in the way that the facts choose for its shape.
void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out);

}  // namespace canzona

// Newton–Schulz approximates the orthogonal factor of a matrix by U·φ(Σ)·Vᵀ,
// where φ is the composition of the steps' polynomials.
//
//   NewtonSchulzPlan plan = newton_schulz_plan(muon_facts, DType::kFp32);
//   orthogonalize(engine, plan, u, o);
//
// Works on any engine: the order of operations is defined here, the products
// are the engine's. A batch is orthogonalized as a whole, one matrix by a team
// or strip by strip (rules/strips.h).
#pragma once

#include <memory>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/strips.h"

namespace canzona {

// The precision of the computation, and where the Gram form restarts.
struct NewtonSchulzNumbers {
  DType precision = DType::kFp32;
  std::vector<int64_t> restarts;  // after so many steps, ascending
};

// Everything that does not depend on the matrix.
struct NewtonSchulzPlan {
  const NewtonSchulzNumbers& numbers(MuonWay way) const {
    return way.small ? small : usual;
  }

  std::vector<Coefficients> steps;
  NewtonSchulzNumbers usual;
  NewtonSchulzNumbers small;  // for small matrices (MuonWay)
  bool schatten4 = false;
  Normalization normalization;
};

// For matrices of type `dtype`; fp64 ones are computed in fp64 throughout.
NewtonSchulzPlan newton_schulz_plan(const MuonFacts& facts, DType dtype);

// The steps are done in segments, each on its own Gram matrix: in the direct
// forms every step is a segment.
size_t num_segments(const NewtonSchulzPlan& plan, MuonWay way);
// The steps [begin, end) of a segment.
struct SegmentSteps {
  size_t begin = 0;
  size_t end = 0;
};
SegmentSteps segment_steps(const NewtonSchulzPlan& plan, MuonWay way,
                           size_t segment);

// The standard form computes both halves of symmetric matrices, the others one.
Half half_of(MuonWay way);

// The symmetric matrices of a segment. The last three exist if a segment may
// have more than one step.
struct GramSpace {
  Operand r, q, p, spare, other;
};
GramSpace make_gram_space(Arena& arena, Algebra& algebra,
                          const NewtonSchulzPlan& plan, MuonWay way,
                          int64_t rows, int64_t count);
// Sets g.q to the product of the polynomials of a segment, where g.r is the
// Gram matrix before the segment.
void collect(Algebra& algebra, const NewtonSchulzPlan& plan, MuonWay way,
             size_t segment, GramSpace& g);

// Starts with the Gram matrix of a normalized X in g.r and ends with the last
// factor in g.q and the matrix that it multiplies in x. y is scratch; x and y
// may have been swapped.
void iterate_segments(Algebra& algebra, const NewtonSchulzPlan& plan,
                      MuonWay way, Operand& x, Operand& y, GramSpace& g);

// The cuts of a long side into that many strips, in the form operands use.
Strips cuts_of(int64_t side, int strips);

// Orthogonalizes a batch, a part at a time, reading through `load` and writing
// through `store`. `way` is what the facts say about the shape.
void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
                   const Load& load, const Store& store);

// Orthogonalizes a batch, in the way that the facts choose for its shape.
void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out);

// Newton–Schulz of one matrix by a team.

// Returns null if the engine's algebra cannot share. Requires at least as many
// strips as members. Operands come from the arena, which must have an open
// scope, and live as long as the transform; the plan must outlive it.
std::unique_ptr<SharedTransform> share_newton_schulz(
    Engine& engine, Arena& arena, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, const TeamSeat& seat);

// Newton–Schulz of one matrix whose strips come one by one
// (rules/strips.h).

// Returns null if the engine's algebra cannot sum strips before it knows the
// norm. The plan and the engine must outlive the transform. `dtype` is the type
// of the matrices.
std::unique_ptr<StripTransform> newton_schulz_by_strips(
    Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, DType dtype);

}  // namespace canzona

// Newton–Schulz approximates the orthogonal factor of a matrix by U·φ(Σ)·Vᵀ,
// where φ is the composition of the steps' polynomials.
//
//   NewtonSchulzPlan plan = newton_schulz_plan(muon_facts, DType::kFp32);
//   orthogonalize(engine, plan, u, o);
//
// Works on any engine: the order of operations is defined here, the products
// are the engine's. A batch is orthogonalized as a whole, one matrix also by a
// team (rules/strips.h).
#pragma once

#include <memory>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/strips.h"

namespace canzona::rules {

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

// Orthogonalizes a batch, a part at a time, reading through `load` and writing
// through `store`. `way` is what the facts say about the shape.
void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
                   const Load& load, const Store& store);

// Returns, in the engine's arena, what an algebra loads for `load.even_rows`;
// momenta advance.
Matrices with_even_rows(Engine& engine, const Load& load);

// Orthogonalizes a batch, in the way that the facts choose for its shape, with
// equal norms of rows if they say so.
void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out);

// Newton–Schulz of one matrix by a team.

// Returns null if the engine's algebra cannot share. Requires at least as many
// strips as members. Operands come from the arena, which must have an open
// scope, and live as long as the transform; the plan must outlive it.
std::unique_ptr<SharedTransform> share_newton_schulz(
    Engine& engine, Arena& arena, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, const TeamSeat& seat);

}  // namespace canzona::rules

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
  std::vector<Coefficients> steps;
  NewtonSchulzNumbers usual;
  NewtonSchulzNumbers small;  // of small matrices (MuonWay)
  bool schatten4 = false;
  Normalization normalization;
};

// For matrices of type `dtype`; fp64 ones are computed in fp64 throughout.
NewtonSchulzPlan newton_schulz_plan(const MuonFacts& facts, DType dtype);

// A batch, a part of it at a time: from where `load` says to where `store`
// says. `way` is what the facts say of the shape.
void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
                   const Load& load, const Store& store);

// A batch, each matrix in the way that the facts choose for its shape.
void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out);

}  // namespace canzona

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

// All that does not depend on the matrix.
struct NewtonSchulzPlan {
  std::vector<Coefficients> steps;
  std::vector<int64_t> restarts;  // after so many steps, ascending
  int64_t gram_rows = 1;          // smaller ones: after every step
  DType precision = DType::kFp32;
  bool schatten4 = false;
  Normalization normalization;
};

// For matrices of type `dtype`; fp64 ones are computed in fp64 throughout.
NewtonSchulzPlan newton_schulz_plan(const MuonFacts& facts, DType dtype);

// A batch, a part of it at a time: from where `load` says to where `store`
// says.
void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan,
                   NewtonSchulz form, const Load& load, const Store& store);

// A batch, each matrix by the form that the facts choose for its shape.
void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out);

}  // namespace canzona

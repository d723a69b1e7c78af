// A new eigenbasis of one factor: by eigh, or from the old one by power steps,
// each a product and a QR.
//
//   const Arena::Scope scope(engine.arena());
//   NewBasis found = find_basis(engine, soap, task, DType::kFp64);
//   if (found.succeeded) …
//
// What is found lies in the engine's arena, so the caller opens the scope.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

struct BasisTask {
  ConstMatrices factor;  // symmetric and finite
  ConstMatrices basis;   // the old one
  double factor_scale = 1;
  bool by_eigh = false;
  bool is_first = false;
  FactorId part;
  DecompositionHook* hook = nullptr;
};

struct NewBasis {
  bool succeeded = false;
  Matrices basis{};
  // Of the factor in the new basis, 1 x n; no data where nothing asks for them.
  Matrices eigenvalues{};
  // Which old vector each new one grew from; empty if the second moment is not
  // to be moved along.
  std::span<const int64_t> order{};
  const char* reason = "";  // of a failure
};

// Computed in `dtype`, given in the factor's type. Fails too where the hook
// refuses what was found. A Cholesky QR that fails is done by Householder.
// Neither factor nor old basis is written.
NewBasis find_basis(Engine& engine, const SoapOptions& soap,
                    const BasisTask& task, DType dtype);

}  // namespace canzona

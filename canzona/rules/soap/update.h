// One step of SOAP on one block of a tensor, all of it at the owner.
//
//   soap_update(engine, soap, {.step = 11, .phase = 0, .part = {}}, block);
//
// The block's runs are contiguous and of its dims; factors and bases belong to
// it alone. What happens if a basis cannot be found is refresh_policy.h's.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/soap/layout.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

// Of one axis; no data where the axis has none.
struct SoapFactor {
  Matrices factor;
  Matrices basis;
  Matrices eigenvalues;  // 1 x n
  Matrices failures;     // 1 x 1

  bool exists() const { return factor.data != nullptr; }
};

struct SoapBlockRuns {
  std::span<const int64_t> dims;
  ConstRun factor_grad;  // what factors see
  ConstRun grad;         // what moments see
  Run first_moment;
  Run second_moment;
  Run grafting_moment;
  Run out;
  std::array<SoapFactor, kMostAxes> factors;
};

struct SoapCall {
  int64_t step = 1;
  int phase = 0;
  FactorId part;
  DecompositionHook* hook = nullptr;
};

void soap_update(Engine& engine, const SoapOptions& soap, const SoapCall& call,
                 const SoapBlockRuns& block);

}  // namespace canzona

// One step of SOAP on the same block of some tensors, all of it at the owner.
//
//   soap_update(engine, soap, {.step = 11, .phase = 0, .part = {}}, blocks);
//
// Runs hold the blocks of all tensors, one after another, each contiguous and
// of the dims given; factors and bases belong to one of them alone. What
// happens if a basis cannot be found is refresh_policy.h's. Without a refresh
// nothing comes back from the engine, so that a device need not be waited for.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/soap/layout.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

// Of one axis, one of each per tensor; no data where the axis has none.
struct SoapFactor {
  Matrices factor;
  Matrices basis;
  Matrices eigenvalues;  // 1 x n
  Matrices failures;     // 1 x 1

  bool exists() const { return factor.data != nullptr; }
};

struct SoapBlockRuns {
  std::span<const int64_t> dims;
  int64_t count = 1;     // of tensors, at most kMostTogether
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
  FactorId part;  // of the first tensor
  DecompositionHook* hook = nullptr;
};

void soap_update(Engine& engine, const SoapOptions& soap, const SoapCall& call,
                 const SoapBlockRuns& blocks);

}  // namespace canzona

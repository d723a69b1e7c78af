// The scalars of a SOAP step. `updates` counts those that moved weights, this
// one included; `step` counts calls. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/stages.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/soap/facts.h"

namespace canzona {

// The coefficients of the moments and their quotient.
AdamCoefficients soap_adam(const SoapOptions& soap, int64_t updates);

// The same of the rule that lends its length, for a first moment that is up to
// date already. Grafting from SGD uses from_moment and from_grad alone.
AdamCoefficients soap_grafting_adam(const SoapOptions& soap, int64_t updates);

// The factor by which the update is larger than the quotient that references
// normalise: with epsilon_mode=uncorrected they take the bias out after that.
double soap_update_scale(const SoapOptions& soap, int64_t updates);

// F = keep·F + add·G·Gᵀ
struct FactorWeights {
  double keep = 0;
  double add = 1;
};
FactorWeights soap_factor_weights(const SoapOptions& soap, int64_t step);

// A factor is multiplied by this before it is decomposed.
double soap_factor_scale(const SoapOptions& soap, int64_t step);

// One step of SOAP on the same block of some tensors, all of it at the owner.
//
//   soap_update(engine, soap, {.step = 11, .phase = 0, .part = {}}, blocks);
//
// Runs hold the blocks of all tensors, one after another, each contiguous and
// of the dims given; factors and bases belong to one of them alone.
// refresh_policy.h says what happens if a basis cannot be found. Without a
// refresh nothing comes back from the engine, so that a device need not be
// waited for.

// The factors of one axis, one of each per tensor; no data if the axis has
// none.
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

// The scalars of a SOAP step. `updates` counts those that moved weights, this
// one included; `step` counts calls. Pure functions.
#pragma once

#include <cstdint>

#include "canzona/linalg/stages.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

// Of the moments and their quotient.
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

// What a factor is multiplied by before it is decomposed.
double soap_factor_scale(const SoapOptions& soap, int64_t step);

}  // namespace canzona

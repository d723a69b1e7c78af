#include "canzona/rules/soap/coefficients.h"

#include <cmath>

namespace canzona {
namespace {

// How much of the gradients an average that keeps `beta` of itself has seen
// after `count` of them. One that keeps all of itself is a sum.
double seen(double beta, int64_t count) {
  return beta == 1 ? 1 : 1 - std::pow(beta, static_cast<double>(count));
}
double weight_of_new(double beta) { return beta == 1 ? 1 : 1 - beta; }

// The direction, from_moment·m + from_grad·g, m being the moment after its
// update: the unbiased moment, a look ahead, or one that keeps beta3.
void set_direction(AdamCoefficients& adam, const SoapOptions& soap,
                   int64_t updates) {
  const double beta1 = soap.beta1;
  const double correction = soap.bias_correction ? seen(beta1, updates) : 1;
  if (soap.nesterov) {
    const double next = soap.bias_correction ? seen(beta1, updates + 1) : 1;
    adam.from_moment = beta1 / next;
    adam.from_grad = (1 - beta1) / correction;
  } else if (soap.beta3 != beta1) {
    const double ratio = soap.beta3 / beta1;
    const double own =
        soap.bias_correction ? 1 - ratio * (1 - seen(beta1, updates)) : 1;
    adam.from_moment = ratio / own;
    adam.from_grad = (1 - ratio) / own;
  } else {
    adam.from_moment = 1 / correction;
    adam.from_grad = 0;
  }
  if (!soap.has_first_moment()) {  // it would be the gradient
    adam.from_grad += adam.from_moment;
    adam.from_moment = 0;
  }
}

}  // namespace

AdamCoefficients soap_adam(const SoapOptions& soap, int64_t updates) {
  AdamCoefficients adam;
  adam.m_keep = soap.beta1;
  adam.m_add = 1 - soap.beta1;
  adam.v_keep = soap.beta2;
  adam.v_add = weight_of_new(soap.beta2);
  adam.epsilon = soap.epsilon;
  set_direction(adam, soap, updates);
  const double root =
      soap.bias_correction ? std::sqrt(seen(soap.beta2, updates)) : 1;
  if (soap.corrected_epsilon) {
    adam.root_scale = 1 / root;
  } else {
    adam.from_moment *= root;
    adam.from_grad *= root;
  }
  return adam;
}

double soap_update_scale(const SoapOptions& soap, int64_t updates) {
  if (soap.corrected_epsilon || !soap.bias_correction) return 1;
  return std::sqrt(seen(soap.beta2, updates)) / seen(soap.beta1, updates);
}

AdamCoefficients soap_grafting_adam(const SoapOptions& soap, int64_t updates) {
  AdamCoefficients adam;
  adam.m_keep = 1;
  adam.m_add = 0;
  set_direction(adam, soap, updates);
  const double beta = soap.grafting == SoapOptions::Grafting::kAdagrad
                          ? 1
                          : soap.grafting_beta2;
  adam.v_keep = beta;
  adam.v_add = weight_of_new(beta);
  adam.epsilon = soap.grafting_epsilon;
  if (soap.grafting == SoapOptions::Grafting::kAdam)
    adam.root_scale = 1 / std::sqrt(seen(beta, updates));
  return adam;
}

FactorWeights soap_factor_weights(const SoapOptions& soap, int64_t step) {
  const double beta = soap.shampoo_beta;
  if (soap.factor_bias != SoapOptions::FactorBias::kWeights || beta == 1)
    return {beta, weight_of_new(beta)};
  const double add = (1 - beta) / seen(beta, step);
  return {1 - add, add};
}

double soap_factor_scale(const SoapOptions& soap, int64_t step) {
  if (soap.factor_bias != SoapOptions::FactorBias::kDecomposition) return 1;
  return 1 / seen(soap.shampoo_beta, step);
}

}  // namespace canzona

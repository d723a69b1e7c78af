// SOAP's options and presets, and what they mean as numbers and kinds.
//
//   SoapOptions soap = read_soap_options(soap_options_in_force(given));
//   if (soap.is_refresh(step, phase)) …
//
// Words: a *factor* is the running average of G·Gᵀ along one axis, a *basis*
// its eigenvectors, a *refresh* the computation of a new basis.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"

namespace canzona {

const std::vector<OptionFact>& soap_option_facts();
const std::vector<Preset>& soap_presets();

// UsageError if options contradict each other.
RuleOptions soap_options_in_force(const RuleOptions& given);

struct SoapOptions {
  enum class Refresh { kQr, kCholeskyQr, kEigh };
  // Columns of a basis: sorted before the QR, by falling estimates of the
  // eigenvalues, with the second moment moved along; or after it, by falling or
  // rising ones, with the second moment as it is.
  enum class Sort { kBefore, kAfter, kAscending };
  // The bias of a factor is taken out nowhere, in the weights of its average,
  // or from the copy that is decomposed.
  enum class FactorBias { kOff, kWeights, kDecomposition };
  enum class Grafting { kNone, kSgd, kAdagrad, kRmsprop, kAdam };

  // Moments.
  double beta1 = 0, beta2 = 0, beta3 = 0;
  double epsilon = 0;
  bool corrected_epsilon = false;
  bool bias_correction = false;
  bool nesterov = false;
  bool moment_in_basis = false;
  bool skips_first_update = false;
  // Factors.
  double shampoo_beta = 0;
  FactorBias factor_bias = FactorBias::kOff;
  bool kl = false;
  bool l2 = false;  // wd·p is added to the gradient
  bool l2_in_factors = false;
  // Bases.
  int period = 1, phases = 1;
  int64_t start_step = 1;
  Refresh refresh = Refresh::kQr;
  bool first_by_eigh = false;
  int64_t power_steps = 1;
  double qr_tolerance = 0;
  Sort sort = Sort::kBefore;
  double eigen_reg = 0;
  bool qr_regularised = false;
  bool basis_includes_gradient = false;
  // Statistics and rotations by bf16x3, bases by bf16x6.
  bool splits_products = false;
  // Shapes.
  int64_t max_dim = 1;
  bool cuts_long_sides = false;
  bool precondition_1d = false;
  bool merges_dims = false;
  std::bitset<kMostAxes> ignored_axes;  // have no factors; not of vectors
  // The length of the update.
  Grafting grafting = Grafting::kNone;
  double grafting_beta2 = 0;
  double grafting_epsilon = 0;
  bool normalizes_update = false;  // to a root mean square of 1
  double max_update_rms = 0;       // 0: no bound

  bool has_first_moment() const { return beta1 != 0; }
  bool has_grafting_moment() const;
  bool keeps_eigenvalues() const { return kl; }
  // Two: the gradient with and without wd·p.
  int gather_fields() const { return l2 && !l2_in_factors ? 2 : 1; }

  // `step` counts calls from 1; updates() are those of them that move weights.
  int64_t updates(int64_t step) const {
    return skips_first_update ? step - 1 : step;
  }
  bool is_refresh(int64_t step, int phase) const;
};

SoapOptions read_soap_options(const RuleOptions& in_force);

}  // namespace canzona

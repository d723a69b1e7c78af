// How SOAP sees a tensor: its axes after merging, which of them have a factor,
// the blocks that long axes are cut into, and where all of that lies in the
// states. Facts and arithmetic use the same list of states:
//
//   exp_avg, exp_avg_sq                     like the tensor; the first if beta1
//   per axis L, Q_L (, eigenvalues_L)       factor, basis, its eigenvalues
//   grafting_avg_sq                         like the tensor, if grafting
//   refresh_failures                        one number per factor
//
// Axes of a matrix or vector are called L and R, those of other tensors 0, 1, 2
// (F_0, Q_0). If sides are cut, factors of equal length form one stack, in
// block order with the last dim running fastest; those of shorter blocks at the
// end of an axis are named "…_edge".
//
// Nothing here allocates: every call constructs its layout anew.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"

namespace canzona::rules {

// SOAP's options and presets, and their parsed values.
//
//   SoapOptions soap = read_soap_options(soap_options_in_force(given));
//   if (soap.is_refresh(step, phase)) …
//
// Terms: a *factor* is the running average of G·Gᵀ along one axis, a *basis*
// its eigenvectors, a *refresh* the computation of a new basis.

const std::vector<OptionFact>& soap_option_facts();
const std::vector<Preset>& soap_presets();

// Throws UsageError if options contradict each other.
RuleOptions soap_options_in_force(const RuleOptions& given);

struct SoapOptions {
  enum class Refresh { kQr, kCholeskyQr, kEigh };
  // How the columns of a basis are sorted: before the QR, by descending
  // estimates of the eigenvalues, permuting the second moment too; or after it,
  // by descending or ascending ones, leaving the second moment as it is.
  enum class Sort { kBefore, kAfter, kAscending };
  // Where the bias of a factor is corrected: nowhere, in the weights of its
  // average, or in the copy that is decomposed.
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
  // Statistics and rotations use bf16x3, bases bf16x6.
  bool splits_products = false;
  // Shapes.
  int64_t max_dim = 1;
  bool cuts_long_sides = false;
  bool precondition_1d = false;
  bool merges_dims = false;
  std::bitset<kMostAxes> ignored_axes;  // without factors; ignored for vectors
  int strips = 1;                       // as requested; 0: auto
  // The length of the update.
  Grafting grafting = Grafting::kNone;
  double grafting_beta2 = 0;
  double grafting_epsilon = 0;
  bool normalizes_update = false;  // to a root mean square of 1
  double max_update_rms = 0;       // 0: no bound

  bool has_first_moment() const { return beta1 != 0; }
  bool has_grafting_moment() const;
  bool keeps_eigenvalues() const { return kl; }
  // Two if factors see the gradient without wd·p and moments with it.
  int gather_fields() const { return l2 && !l2_in_factors ? 2 : 1; }

  // `step` counts calls from 1; updates() counts those that move weights.
  int64_t updates(int64_t step) const {
    return skips_first_update ? step - 1 : step;
  }
  bool is_refresh(int64_t step, int phase) const;
};

SoapOptions read_soap_options(const RuleOptions& in_force);

// A matrix with one factor, cut into strips along the other side.
struct SoapCut {
  int axis = 0;  // of the factor
  int strips = 1;
};

class SoapLayout {
 public:
  // Throws UsageError if the tensor has too many dims or counts overflow 64
  // bits.
  SoapLayout(const SoapOptions& options, std::span<const int64_t> dims);

  const FactorLayout& factors() const { return factors_; }
  const Blocking& blocking() const { return factors_.blocking(); }
  // One strip unless this is a matrix that is one block, has one factor and is
  // at least as long along the other side.
  SoapCut cut(const SoapOptions& options) const;
  // The axis of the factor that a helper may decompose in refreshes: that of
  // the longer side, of a square the columns'. -1 unless this is a matrix that
  // is one block and has two factors.
  int helped_axis(const SoapOptions& options) const;

  // Indices in the list of states.
  int exp_avg_sq() const { return exp_avg_sq_; }
  int grafting() const { return factors_.end_state(); }
  int refresh_failures() const { return refresh_failures_; }

 private:
  int exp_avg_sq_;
  FactorLayout factors_;  // each with its basis and perhaps eigenvalues
  int refresh_failures_;
};

// SOAP: Adam in the eigenbasis of second-moment factors, L of the rows and R of
// the columns. All states live at the owner (SoapLayout lists them).
//
// A side longer than max_preconditioner_dim gets no factor and is not rotated;
// with no factor at all the rule is Adam, run at the owner. With one factor the
// other side may be cut into strips (strips.h), which ranks can share: members
// of a team keep the moments of their strips and the basis, the head keeps the
// factor as well.
//
// Defaults are those of the original: weights move from the second step on,
// because a gradient rotated into its own eigenbasis is diagonal, and Adam
// would amplify the rounding noise beside the diagonal to full size. Unlike the
// original, the first moment is not rotated out of the basis and back on every
// step: it stays in the basis and is rotated only when the basis changes.
class SoapFacts final : public RuleFacts {
 public:
  explicit SoapFacts(const RuleOptions& given);

  std::string_view name() const override { return "soap"; }
  RuleOptions options() const override { return in_force_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  // Splits where long sides are cut, unless the length of a whole update
  // matters.
  MatrixShape block(MatrixShape shape) const override;
  std::vector<BlockState> block_states(MatrixShape shape,
                                       int64_t number) const override;
  StripFacts strips(MatrixShape shape) const override;
  std::vector<TeamState> team_states(MatrixShape shape, int members,
                                     int member) const override;
  bool refreshes(int64_t step, int phase) const override {
    return soap_.is_refresh(step, phase);
  }
  // "qr", "cholesky_qr" or "eigh"; "adam" where no side has a factor.
  std::string algorithm(MatrixShape shape) const override;
  int period() const override { return soap_.period; }
  int phases() const override { return soap_.phases; }
  int gather_fields() const override { return soap_.gather_fields(); }

  // The same options, parsed.
  const SoapOptions& read_options() const { return soap_; }

 private:
  RuleOptions in_force_;
  SoapOptions soap_;
};

// The factor that is sent at a refresh: whether a basis was found and whether
// second moments are permuted, 8 bytes each, the order of the old vectors, 8
// bytes each, the basis in fp32, and, by a helper, eigenvalues if they are
// kept.
inline constexpr int64_t kSoapFactorFlags = 2;
inline int64_t soap_factor_order_at() {
  return kSoapFactorFlags * static_cast<int64_t>(sizeof(int64_t));
}
// Aligned to 16 bytes.
inline int64_t soap_factor_basis_at(int64_t side) {
  return soap_factor_order_at() +
         (side + side % 2) * static_cast<int64_t>(sizeof(int64_t));
}
// `element` is the size of an element of the basis.
inline int64_t soap_factor_bytes(int64_t side, int64_t element) {
  return soap_factor_basis_at(side) + (Bytes(side) * side * element).value();
}
inline int64_t soap_helper_factor_bytes(const SoapOptions& soap, int64_t side,
                                        int64_t element) {
  return soap_factor_bytes(side, element) +
         (soap.keeps_eigenvalues() ? side * element : 0);
}

RuleEntry soap_entry();

}  // namespace canzona::rules

#include "canzona/rules/soap/update.h"

#include <algorithm>
#include <cmath>

#include "canzona/rules/axes.h"
#include "canzona/rules/convert.h"
#include "canzona/rules/refresh_policy.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/soap/basis.h"
#include "canzona/rules/soap/coefficients.h"

namespace canzona {
namespace {

using Grafting = SoapOptions::Grafting;

constexpr double kGraftingNormEpsilon = 1e-16;

class BlockStep {
 public:
  BlockStep(Engine& engine, const SoapOptions& soap, const SoapCall& call,
            const SoapBlockRuns& block)
      : engine_(engine),
        soap_(soap),
        call_(call),
        block_(block),
        updates_(soap.updates(call.step)),
        elements_(count_elements(block.dims)) {}

  void run() {
    const Arena::Scope scope(engine_.arena());
    if (updates_ == 0) {
      learn_basis();
      engine_.set_identity(flat(block_.out), 0.0);
      return;
    }
    if (soap_.basis_includes_gradient) learn_basis();
    update();
    if (!soap_.basis_includes_gradient) learn_basis();
  }

 private:
  static int64_t count_elements(std::span<const int64_t> dims) {
    int64_t product = 1;
    for (int64_t d : dims) product *= d;
    return product;
  }
  DType dtype() const { return block_.out.dtype; }
  int order() const { return static_cast<int>(block_.dims.size()); }
  const SoapFactor& factor(int axis) const {
    return block_.factors[static_cast<size_t>(axis)];
  }
  Run scratch() {
    return {engine_.arena().take(elements_ * size_of(dtype())), dtype()};
  }
  Matrices flat(Run run) const { return as_row(run, elements_); }
  ConstMatrices flat(ConstRun run) const { return as_row(run, elements_); }

  void learn_basis() {
    add_to_factors();
    if (!soap_.is_refresh(call_.step, call_.phase)) return;
    for (int axis = 0; axis < order(); ++axis)
      if (factor(axis).exists()) renew_basis(axis);
  }

  void add_to_factors() {
    const FactorWeights weights = soap_factor_weights(soap_, call_.step);
    for (int axis = 0; axis < order(); ++axis) {
      if (!factor(axis).exists()) continue;
      const Arena::Scope scope(engine_.arena());
      const ConstRun seen = soap_.kl ? kl_grad(axis) : block_.factor_grad;
      add_statistics(engine_, factor(axis).factor, weights.keep, weights.add,
                     seen, block_.dims, axis);
    }
  }

  // The gradient times the inverse root of every other factor, up to a
  // rotation of that axis, which its statistics do not see.
  ConstRun kl_grad(int axis) {
    ConstRun seen = block_.factor_grad;
    for (int other = 0; other < order(); ++other) {
      if (other == axis || !factor(other).exists()) continue;
      const Run weighed = scratch();
      rotate(engine_, weighed, seen, block_.dims, other, inverse_root(other),
             Op::kTranspose);
      seen = weighed;
    }
    return seen;
  }

  // Q·(n·max(eigenvalues, epsilon))^(-1/2)
  Matrices inverse_root(int axis) {
    const SoapFactor& kept = factor(axis);
    const int64_t n = kept.basis.rows;
    const Matrices seen = engine_.arena().matrices(DType::kFp64, 1, n);
    convert(seen, kept.eigenvalues);
    double* values = seen.as<double>();
    for (int64_t i = 0; i < n; ++i)
      values[i] = 1 / std::sqrt(static_cast<double>(n) *
                                std::max(values[i], soap_.epsilon));
    const Matrices roots = engine_.arena().matrices(dtype(), 1, n);
    convert(roots, seen);
    const Matrices scaled = engine_.arena().matrices(dtype(), n, n);
    engine_.scale_columns(scaled, kept.basis, roots);
    return scaled;
  }

  void renew_basis(int axis) {
    const Arena::Scope scope(engine_.arena());
    const SoapFactor& kept = factor(axis);
    const RefreshSite site = site_of(axis);
    const BasisTask task = task_of(kept, site.part);
    NewBasis found;
    const auto find = [&](DType dtype) -> Decomposition {
      found = find_basis(engine_, soap_, task, dtype);
      return {found.succeeded, found.basis, found.reason};
    };
    if (!refresh(engine_, site, kept.factor, find).succeeded) return;
    move_second_moment(axis, found.order);
    move_first_moment(axis, found.basis);
    engine_.copy(kept.basis, found.basis);
    if (kept.eigenvalues.data != nullptr)
      engine_.copy(kept.eigenvalues, found.eigenvalues);
  }

  RefreshSite site_of(int axis) const {
    RefreshSite site{.rule = "soap", .result = "basis", .step = call_.step};
    site.part = call_.part;
    site.part.axis = axis;
    site.failures = factor(axis).failures;
    return site;
  }

  BasisTask task_of(const SoapFactor& kept, const FactorId& part) const {
    BasisTask task;
    task.factor = kept.factor;
    task.basis = kept.basis;
    task.factor_scale = soap_factor_scale(soap_, call_.step);
    task.is_first = call_.step == soap_.start_step;
    task.by_eigh = soap_.refresh == SoapOptions::Refresh::kEigh ||
                   (task.is_first && soap_.first_by_eigh);
    task.part = part;
    task.hook = call_.hook;
    return task;
  }

  void move_second_moment(int axis, std::span<const int64_t> columns) {
    if (columns.empty() || updates_ == 0) return;
    const Run moved = scratch();
    permute(engine_, moved, block_.second_moment, block_.dims, axis, columns);
    engine_.copy(flat(block_.second_moment), flat(moved));
  }

  // Out of the old basis and into the new one: by two rotations, or by one with
  // the product of both where that is less work.
  void move_first_moment(int axis, ConstMatrices basis) {
    const bool is_zero = call_.step == 1;
    if (!soap_.moment_in_basis || !soap_.has_first_moment() || is_zero) return;
    const ConstMatrices old = factor(axis).basis;
    const int64_t n = old.rows;
    const Run moved = scratch();
    const Run moment = block_.first_moment;
    if (elements_ / n > n) {
      const Matrices both = engine_.arena().matrices(dtype(), n, n);
      engine_.product(both, 1.0, basis, Op::kTranspose, old, Op::kNone, 0.0);
      rotate(engine_, moved, moment, block_.dims, axis, both, Op::kNone);
      engine_.copy(flat(moment), flat(moved));
    } else {
      rotate(engine_, moved, moment, block_.dims, axis, old, Op::kNone);
      rotate(engine_, moment, moved, block_.dims, axis, basis, Op::kTranspose);
    }
  }

  // Rotates along all axes; what comes of it is in `to`. Not for use without
  // factors.
  void rotate_all(Run to, ConstRun from, Run spare, Op op) {
    int left = count_factors();
    for (int axis = 0; axis < order(); ++axis) {
      if (!factor(axis).exists()) continue;
      const Run target = left % 2 == 1 ? to : spare;
      rotate(engine_, target, from, block_.dims, axis, factor(axis).basis, op);
      from = target;
      --left;
    }
  }
  int count_factors() const {
    int count = 0;
    for (int axis = 0; axis < order(); ++axis) count += factor(axis).exists();
    return count;
  }

  void update() {
    const Arena::Scope scope(engine_.arena());
    AdamCoefficients adam = soap_adam(soap_, updates_);
    Run moment = block_.first_moment;
    const bool apart = soap_.has_first_moment() && !soap_.moment_in_basis;
    if (apart) {
      engine_.axpby(flat(moment), adam.m_add, flat(block_.grad), adam.m_keep);
      adam.m_keep = 1;
      adam.m_add = 0;
    }
    if (count_factors() == 0) {
      engine_.adam(block_.grad, moment, block_.second_moment, block_.out, adam,
                   elements_);
    } else {
      const Run rotated = scratch();
      const Run spare = scratch();
      rotate_all(rotated, block_.grad, spare, Op::kTranspose);
      if (apart) {
        moment = scratch();
        rotate_all(moment, block_.first_moment, spare, Op::kTranspose);
      }
      engine_.adam(rotated, moment, block_.second_moment, rotated, adam,
                   elements_);
      rotate_all(block_.out, rotated, spare, Op::kNone);
    }
    if (soap_.grafting != Grafting::kNone) graft();
  }

  // Gives the update the length of another rule's; before the first basis, the
  // other rule's update takes its place.
  void graft() {
    const Run other = scratch();
    other_update(other);
    const bool warming_up = call_.step < soap_.start_step;
    if (warming_up)
      engine_.copy(flat(block_.out), flat(other));
    else
      engine_.scale_to_norm(flat(block_.out), flat(other),
                            kGraftingNormEpsilon);
  }

  void other_update(Run out) {
    const AdamCoefficients adam = soap_grafting_adam(soap_, updates_);
    if (soap_.has_grafting_moment()) {
      engine_.adam(block_.grad, block_.first_moment, block_.grafting_moment,
                   out, adam, elements_);
      return;
    }
    engine_.axpby(flat(out), adam.from_grad, flat(block_.grad), 0.0);
    if (soap_.has_first_moment())
      engine_.axpby(flat(out), adam.from_moment, flat(block_.first_moment),
                    1.0);
  }

  Engine& engine_;
  const SoapOptions& soap_;
  const SoapCall& call_;
  const SoapBlockRuns& block_;
  const int64_t updates_;
  const int64_t elements_;
};

}  // namespace

void soap_update(Engine& engine, const SoapOptions& soap, const SoapCall& call,
                 const SoapBlockRuns& block) {
  BlockStep(engine, soap, call, block).run();
}

}  // namespace canzona

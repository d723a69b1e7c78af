#include "canzona/rules/soap/update.h"

#include <cmath>

#include "canzona/rules/refresh.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/together.h"

namespace canzona::rules {
namespace {

// Returns the sum of the weights of an average that keeps `beta` of itself
// after `count` gradients. With beta 1 it is a sum.
double seen(double beta, int64_t count) {
  return beta == 1 ? 1 : 1 - std::pow(beta, static_cast<double>(count));
}
double weight_of_new(double beta) { return beta == 1 ? 1 : 1 - beta; }

// The direction is from_moment·m + from_grad·g, where m is the updated moment:
// the unbiased moment, a look-ahead, or one with decay beta3.
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
  if (!soap.has_first_moment()) {  // the moment would equal the gradient
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

void soap_make_room(Engine& engine, const SoapOptions& soap,
                    const SoapFactor& kept, SoapBasisChange& change) {
  Arena& arena = engine.arena();
  const DType dtype = kept.basis.dtype;
  const int64_t n = kept.basis.rows, count = kept.basis.count;
  NewBases& room = change.found;
  room.basis = arena.matrices(dtype, n, n, count);
  if (finds_eigenvalues(soap))
    room.eigenvalues = arena.matrices(dtype, 1, n, count);
  room.order = {arena.take_array<int64_t>(n * count), n, count};
  room.moved = change.moved.span();
}

namespace {

BasisTask basis_task(const SoapOptions& soap, const SoapCall& call,
                     const SoapFactor& kept, const FactorId& part) {
  BasisTask task;
  task.factor = kept.factor;
  task.basis = kept.basis;
  task.factor_scale = soap_factor_scale(soap, call.step);
  task.is_first = call.step == soap.start_step;
  task.by_eigh = soap.refresh == SoapOptions::Refresh::kEigh ||
                 (task.is_first && soap.first_by_eigh);
  task.part = part;
  task.hook = call.hook;
  return task;
}

RefreshSite site_of(const SoapCall& call, int axis, const SoapFactor& kept) {
  RefreshSite site{.rule = "soap", .result = "basis", .step = call.step};
  site.part = call.part;
  site.part.axis = axis;
  site.failures = kept.failures;
  return site;
}

}  // namespace

bool soap_learns_first(const SoapOptions& soap, int64_t step) {
  return soap.updates(step) == 0 || soap.basis_includes_gradient;
}

void soap_count_failures(Engine& engine, const SoapCall& call, int axis,
                         const SoapFactor& kept, SoapBasisChange& change) {
  count_failures(engine, site_of(call, axis, kept), change.outcomes.span());
}

void soap_find_bases(Engine& engine, const SoapOptions& soap,
                     const SoapCall& call, int axis, const SoapFactor& kept,
                     SoapBasisChange& change) {
  const RefreshSite site = site_of(call, axis, kept);
  const BasisTask task = basis_task(soap, call, kept, site.part);
  const NewBases& found = change.found;
  refresh(engine, site, kept.factor, found.basis, change.outcomes.span(),
          [&](DType in, int64_t begin, std::span<Outcome> tried) {
            const ProductsScope exact(engine,
                                      exact_products_of(soap.splits_products),
                                      products_of(soap.splits_products));
            const int64_t size = std::ssize(tried);
            find_bases(engine, soap, task.some(begin, size), in,
                       found.some(begin, size), tried);
          });
}

void soap_take_bases(Engine& engine, const SoapFactor& kept,
                     const SoapBasisChange& change) {
  const NewBases& found = change.found;
  for_each_run(
      found.basis.count,
      [&](int64_t i) { return change.outcomes[i].succeeded; },
      [&](int64_t begin, int64_t size) {
        engine.copy(kept.basis.part(begin, size),
                    found.basis.part(begin, size));
        if (kept.eigenvalues.data != nullptr)
          engine.copy(kept.eigenvalues.part(begin, size),
                      found.eigenvalues.part(begin, size));
      });
}

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
        elements_(count_elements(block.dims)),
        count_(block.count) {}

  void run() {
    const Arena::Scope scope(engine_.arena());
    const bool first = soap_learns_first(soap_, call_.step);
    if (first) learn_basis();
    direction();
    if (!first) learn_basis();
  }

  void direction() {
    if (updates_ == 0)
      engine_.set_zero(block_.out.data, all() * size_of(dtype()));
    else
      update();
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

  void move_moments(int axis, const SoapBasisChange& change) {
    for_each_run(
        count_,
        [&](int64_t i) {
          return change.outcomes[i].succeeded && change.moved[i];
        },
        [&](int64_t begin, int64_t size) {
          move_second_moment(axis, begin, change.found.some(begin, size).order);
        });
    for_each_run(
        count_, [&](int64_t i) { return change.outcomes[i].succeeded; },
        [&](int64_t begin, int64_t size) {
          move_first_moment(axis, begin, change.found.basis.part(begin, size));
        });
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
  // Scratch for the blocks of all tensors, or of `tensors` of them.
  Run scratch() { return scratch(count_); }
  Run scratch(int64_t tensors) {
    const int64_t bytes = tensors * elements_ * size_of(dtype());
    return {engine_.arena().take(bytes), dtype()};
  }
  int64_t all() const { return elements_ * count_; }
  template <class AnyRun>
  auto flat(AnyRun run) const {
    return as_row(run, all());
  }
  // The run starting at that tensor.
  Run from_tensor(Run run, int64_t place) const {
    return advanced(run, place * elements_);
  }

  void learn_basis() {
    add_to_factors();
    if (!soap_.is_refresh(call_.step, call_.phase)) return;
    for (int axis = 0; axis < order(); ++axis)
      if (factor(axis).exists()) renew_bases(axis);
  }

  // The gradient times the inverse root of every other factor, up to a rotation
  // of that axis, which does not affect this axis's statistics.
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
    const Matrices roots = engine_.arena().matrices(dtype(), 1, n, count_);
    engine_.inverse_roots(roots, kept.eigenvalues, static_cast<double>(n),
                          soap_.epsilon);
    const Matrices scaled = engine_.arena().matrices(dtype(), n, n, count_);
    engine_.scale_columns(scaled, kept.basis, roots);
    return scaled;
  }

  void renew_bases(int axis) {
    const Arena::Scope scope(engine_.arena());
    SoapBasisChange change(count_);
    soap_make_room(engine_, soap_, factor(axis), change);
    soap_find_bases(engine_, soap_, call_, axis, factor(axis), change);
    move_moments(axis, change);
    soap_take_bases(engine_, factor(axis), change);
  }

  // Permutes the second moments of as many tensors as there are orders.
  void move_second_moment(int axis, int64_t begin, ConstOrders orders) {
    if (updates_ == 0) return;
    const Arena::Scope scope(engine_.arena());
    const Run moment = from_tensor(block_.second_moment, begin);
    const Run moved = scratch(orders.count);
    permute(engine_, moved, moment, block_.dims, axis, orders);
    engine_.copy(as_row(moment, orders.count * elements_),
                 as_row(moved, orders.count * elements_));
  }

  // Moves the first moment out of the old bases and into the new ones: by two
  // rotations, or by one with the product of both where that is less work.
  void move_first_moment(int axis, int64_t begin, ConstMatrices basis) {
    const bool is_zero = call_.step == 1;
    if (!soap_.moment_in_basis || !soap_.has_first_moment() || is_zero) return;
    const Arena::Scope scope(engine_.arena());
    const int64_t n = basis.rows;
    const int64_t size = basis.count;
    const ConstMatrices old = factor(axis).basis.part(begin, size);
    const Run moment = from_tensor(block_.first_moment, begin);
    const Run moved = scratch(size);
    if (elements_ / n > n) {
      const Matrices both = engine_.arena().matrices(dtype(), n, n, size);
      engine_.product(both, 1.0, basis, Op::kTranspose, old, Op::kNone, 0.0);
      rotate(engine_, moved, moment, block_.dims, axis, both, Op::kNone);
      engine_.copy(as_row(moment, size * elements_),
                   as_row(moved, size * elements_));
    } else {
      rotate(engine_, moved, moment, block_.dims, axis, old, Op::kNone);
      rotate(engine_, moment, moved, block_.dims, axis, basis, Op::kTranspose);
    }
  }

  // Rotates along all axes; the result is in `to`. Requires at least one
  // factor.
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
                   all());
    } else {
      const Run rotated = scratch();
      const Run spare = scratch();
      rotate_all(rotated, block_.grad, spare, Op::kTranspose);
      if (apart) {
        moment = scratch();
        rotate_all(moment, block_.first_moment, spare, Op::kTranspose);
      }
      engine_.adam(rotated, moment, block_.second_moment, rotated, adam, all());
      rotate_all(block_.out, rotated, spare, Op::kNone);
    }
    if (soap_.grafting != Grafting::kNone) graft();
  }

  // Scales the update to the length of another rule's; before the first basis,
  // the other rule's update replaces it.
  void graft() {
    const Run other = scratch();
    other_update(other);
    const bool warming_up = call_.step < soap_.start_step;
    if (warming_up)
      engine_.copy(flat(block_.out), flat(other));
    else
      engine_.scale_to_norm(as_matrices(block_.out, 1, elements_, count_),
                            as_matrices(other, 1, elements_, count_),
                            kGraftingNormEpsilon);
  }

  void other_update(Run out) {
    const AdamCoefficients adam = soap_grafting_adam(soap_, updates_);
    if (soap_.has_grafting_moment()) {
      engine_.adam(block_.grad, block_.first_moment, block_.grafting_moment,
                   out, adam, all());
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
  const int64_t elements_;  // of one tensor's block
  const int64_t count_;
};

}  // namespace

void soap_update(Engine& engine, const SoapOptions& soap, const SoapCall& call,
                 const SoapBlockRuns& blocks) {
  BlockStep(engine, soap, call, blocks).run();
}

void soap_add_statistics(Engine& engine, const SoapOptions& soap,
                         const SoapCall& call, const SoapBlockRuns& blocks) {
  BlockStep(engine, soap, call, blocks).add_to_factors();
}

void soap_move_moments(Engine& engine, const SoapOptions& soap,
                       const SoapCall& call, const SoapBlockRuns& blocks,
                       int axis, const SoapBasisChange& change) {
  BlockStep(engine, soap, call, blocks).move_moments(axis, change);
}

void soap_direction(Engine& engine, const SoapOptions& soap,
                    const SoapCall& call, const SoapBlockRuns& blocks) {
  BlockStep(engine, soap, call, blocks).direction();
}

}  // namespace canzona::rules

#include "canzona/rules/soap/helper.h"

#include "canzona/rules/helped_transform.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/soap/strips.h"
#include "canzona/rules/together.h"

namespace canzona {
namespace {

// Finds bases where they are sent from.
class HelpedSoap : public HelpedTransform {
 public:
  HelpedSoap(Engine& engine, const SoapOptions& soap, const SoapLayout& layout,
             DType dtype)
      : HelpedTransform(
            engine, layout.blocking().sizes()[layout.helped_axis(soap)], dtype),
        soap_(soap),
        layout_(layout),
        helped_(layout.helped_axis(soap)) {}

  int64_t factor_bytes() const override { return bytes_of_basis(helped_); }

  void begin(const SharedStep& step) override {
    HelpedTransform::begin(step);
    call_ = {.step = step.step, .phase = step.phase, .part = {}};
  }

 protected:
  int64_t side(int axis) const { return layout_.blocking().sizes()[axis]; }
  int64_t bytes_of_basis(int axis) const {
    return soap_helper_factor_bytes(soap_, side(axis), size_of(dtype_));
  }
  bool refreshes() const { return soap_.is_refresh(call_.step, call_.phase); }
  ProductsScope products() const {
    return {engine_, products_of(soap_.splits_products)};
  }

  // New bases lie in `sent`.
  void put_in(SoapBasisChange& change, int axis, std::byte* sent) const {
    soap_put_in(change, {sent, dtype_}, side(axis));
    if (soap_.keeps_eigenvalues())
      change.found.eigenvalues = as_matrices(
          Run{sent + soap_factor_bytes(side(axis), size_of(dtype_)), dtype_}, 1,
          side(axis));
  }
  void decompose(int axis, const SoapFactor& kept, std::byte* sent,
                 SoapBasisChange& change) {
    soap_make_room(engine_, soap_, kept, change);
    put_in(change, axis, sent);
    soap_find_bases(engine_, soap_, call_, axis, kept, change);
    soap_send_flags(engine_, change, sent);
  }

  const SoapOptions& soap_;
  const SoapLayout layout_;
  const int helped_;  // axis of the helper's factor
  SoapCall call_;     // of the current step
};

class SoapOwner final : public HelpedSoap {
 public:
  SoapOwner(Engine& engine, Arena& arena, const SoapOptions& soap,
            const SoapLayout& layout, DType dtype)
      : HelpedSoap(engine, soap, layout, dtype),
        found_(arena.take(bytes_of_basis(1 - helped_))) {}

  MatrixShape piece() const override { return {side(0), side(1)}; }

  void sum(int, std::byte* sums) override {
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    soap_add_statistics(engine_, soap_, call_, runs({nullptr, dtype_}));
    if (refreshes())
      engine_.take_triangle({sums, dtype_}, factor(helped_).factor);
  }

  void iterate(int, const std::byte*, std::byte*) override {
    if (!refreshes()) return;
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    SoapBasisChange change(1);
    decompose(1 - helped_, factor(1 - helped_), found_, change);
  }

  // The update may be written to where the gradient is, which grafting needs
  // to the end.
  void multiply(int, const std::byte* sent, Run out) override {
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    const int64_t elements = layout_.blocking().elements();
    const SoapBlockRuns whole =
        runs({engine_.arena().take(elements * size_of(dtype_)), dtype_});
    const bool first = soap_learns_first(soap_, call_.step);
    if (!first) soap_direction(engine_, soap_, call_, whole);
    for (int axis = 0; refreshes() && axis < 2; ++axis)
      take_basis(whole, axis,
                 axis == helped_ ? const_cast<std::byte*>(sent) : found_);
    if (first) soap_direction(engine_, soap_, call_, whole);
    engine_.copy(as_row(out, elements), as_row(ConstRun(whole.out), elements));
  }

 private:
  SoapFactor factor(int axis) const {
    const FactorPlace at =
        layout_.factors().place(layout_.blocking().block(0), axis);
    const int64_t n = at.side;
    SoapFactor kept;
    kept.factor = as_matrices(state(at.first_state), n, n);
    kept.basis = as_matrices(state(at.first_state + 1), n, n);
    if (soap_.keeps_eigenvalues())
      kept.eigenvalues = as_matrices(state(at.first_state + 2), 1, n);
    kept.failures = as_matrices(
        advanced(state(layout_.refresh_failures()), at.failures), 1, 1);
    return kept;
  }

  SoapBlockRuns runs(Run out) const {
    SoapBlockRuns runs;
    runs.dims = layout_.blocking().sizes().span();
    runs.factor_grad = runs.grad = piece_;
    if (soap_.has_first_moment()) runs.first_moment = state(0);
    runs.second_moment = state(layout_.exp_avg_sq());
    if (soap_.has_grafting_moment())
      runs.grafting_moment = state(layout_.grafting());
    runs.out = out;
    for (int axis = 0; axis < 2; ++axis)
      runs.factors[static_cast<size_t>(axis)] = factor(axis);
    return runs;
  }

  void take_basis(const SoapBlockRuns& whole, int axis, std::byte* sent) {
    SoapBasisChange change(1);
    put_in(change, axis, sent);
    soap_get_flags(engine_, change, sent);
    const SoapFactor& kept = whole.factors[static_cast<size_t>(axis)];
    if (axis == helped_)
      soap_count_failures(engine_, call_, axis, kept, change);
    soap_move_moments(engine_, soap_, call_, whole, axis, change);
    soap_take_bases(engine_, kept, change);
  }

  std::byte* found_;  // the owner's own basis, until the step takes both
};

class SoapHelper final : public HelpedSoap {
 public:
  using HelpedSoap::HelpedSoap;

  MatrixShape piece() const override { return {0, 0}; }
  void sum(int, std::byte*) override {}
  void multiply(int, const std::byte*, Run) override {}

  void iterate(int, const std::byte* triangle, std::byte* sent) override {
    if (!refreshes()) return;
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    SoapFactor kept;
    kept.factor = engine_.arena().matrices(dtype_, side_, side_);
    kept.failures = as_matrices(state(0), 1, 1);
    kept.basis = as_matrices(state(1), side_, side_);
    engine_.put_triangle(kept.factor, {triangle, dtype_});
    SoapBasisChange change(1);
    decompose(helped_, kept, sent, change);
    soap_take_bases(engine_, kept, change);
  }
};

}  // namespace

std::unique_ptr<SharedTransform> help_soap(Engine& engine, Arena& arena,
                                           const SoapOptions& soap,
                                           const SoapLayout& layout,
                                           const TeamSeat& seat, DType dtype) {
  if (is_owner(seat))
    return std::make_unique<SoapOwner>(engine, arena, soap, layout, dtype);
  return std::make_unique<SoapHelper>(engine, soap, layout, dtype);
}

}  // namespace canzona

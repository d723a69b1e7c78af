#include "canzona/rules/soap/basis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "canzona/rules/convert.h"

namespace canzona {
namespace {

using Refresh = SoapOptions::Refresh;
using Sort = SoapOptions::Sort;

constexpr const char* kBadEstimates = "eigenvalues that are not finite";

NewBasis failure(const char* reason) {
  NewBasis none;
  none.reason = reason;
  return none;
}

// One try, all in one type of number.
class BasisSearch {
 public:
  BasisSearch(Engine& engine, const SoapOptions& soap, const BasisTask& task)
      : engine_(engine),
        soap_(soap),
        task_(task),
        n_(task.factor.rows),
        values_(scratch(1)) {}

  NewBasis search() {
    NewBasis found;
    if (task_.by_eigh)
      found = already_diagonal() ? old_basis() : by_eigh();
    else
      found = by_power_steps();
    if (found.succeeded && !engine_.all_finite(run(found.basis), n_ * n_))
      return failure("vectors that are not finite");
    return found;
  }

 private:
  static ConstRun run(ConstMatrices m) { return {m.data, m.dtype}; }
  Matrices scratch(int64_t rows) {
    return engine_.arena().matrices(task_.factor.dtype, rows, n_);
  }
  bool wants_eigenvalues() const {
    return soap_.sort != Sort::kBefore || soap_.keeps_eigenvalues();
  }

  // to = A·Q, A being the factor as it is to be decomposed; and estimates of
  // its eigenvalues, the diagonal of QᵀAQ.
  void multiply(Matrices to, ConstMatrices q) {
    engine_.product(to, task_.factor_scale, task_.factor, Op::kNone, q,
                    Op::kNone, 0.0);
    if (soap_.qr_regularised && soap_.eigen_reg != 0)
      engine_.axpby(to, soap_.eigen_reg, q, 1.0);
    engine_.column_dots(values_, q, to);
  }

  // Whether A·Q and the estimates say that QᵀAQ is diagonal enough. Q is
  // orthogonal: QᵀAQ is as long as A·Q, and what is not on its diagonal is off.
  bool is_diagonal(ConstMatrices product) {
    double length = 0;
    double diagonal = 0;
    engine_.norms(product, {&length, 1});
    engine_.norms(values_, {&diagonal, 1});
    const double off = length * length - diagonal * diagonal;
    return std::sqrt(std::max(off, 0.0)) <= soap_.qr_tolerance * length;
  }

  bool already_diagonal() {
    if (soap_.qr_tolerance == 0 || task_.is_first) return false;
    const Matrices product = scratch(n_);
    multiply(product, task_.basis);
    return is_diagonal(product);
  }

  NewBasis old_basis() {
    const Matrices basis = scratch(n_);
    engine_.copy(basis, task_.basis);
    return finish(basis, scratch(n_));
  }

  // Indices by falling or rising estimates; the first of equal ones first.
  std::span<int64_t> sorted(bool falling) {
    const Matrices seen = engine_.arena().matrices(DType::kFp64, 1, n_);
    convert(seen, values_);
    const double* value = seen.as<double>();
    int64_t* order = engine_.arena().take_array<int64_t>(n_);
    std::iota(order, order + n_, int64_t{0});
    std::sort(order, order + n_, [&](int64_t a, int64_t b) {
      if (value[a] == value[b]) return a < b;
      return falling ? value[a] > value[b] : value[a] < value[b];
    });
    return {order, static_cast<size_t>(n_)};
  }
  std::span<int64_t> reversed() {
    int64_t* order = engine_.arena().take_array<int64_t>(n_);
    for (int64_t i = 0; i < n_; ++i) order[i] = n_ - 1 - i;
    return {order, static_cast<size_t>(n_)};
  }
  bool values_finite() { return engine_.all_finite(run(values_), n_); }

  bool orthogonalise(Matrices a) {
    bool succeeded = false;
    if (soap_.refresh != Refresh::kCholeskyQr) {
      engine_.qr(a, {&succeeded, 1});
      return succeeded;
    }
    const Arena::Scope scope(engine_.arena());
    const Matrices copy = scratch(n_);
    engine_.copy(copy, a);
    engine_.cholesky_qr(a, {&succeeded, 1});
    if (succeeded) return true;
    engine_.copy(a, copy);
    engine_.qr(a, {&succeeded, 1});
    return succeeded;
  }

  NewBasis by_eigh() {
    const Matrices vectors = scratch(n_);
    engine_.axpby(vectors, task_.factor_scale, task_.factor, 0.0);
    if (soap_.eigen_reg != 0) engine_.add_diagonal(vectors, soap_.eigen_reg);
    bool succeeded = false;
    engine_.eigh(vectors, values_, {&succeeded, 1});
    if (!succeeded) return failure("no eigenvectors");
    NewBasis found{.succeeded = true, .basis = vectors};
    if (soap_.sort != Sort::kAscending) {
      found.basis = scratch(n_);
      reorder(found.basis, vectors, reversed());
    }
    if (wants_eigenvalues()) found.eigenvalues = values_;
    return found;
  }

  // Columns and the estimates that belong to them.
  void reorder(Matrices to, ConstMatrices from,
               std::span<const int64_t> order) {
    engine_.permute_columns(to, from, order);
    const Matrices values = scratch(1);
    engine_.permute_columns(values, values_, order);
    values_ = values;
  }

  NewBasis by_power_steps() {
    Matrices next = scratch(n_);
    Matrices other = scratch(n_);
    ConstMatrices current = task_.basis;
    std::span<int64_t> order;
    for (int64_t i = 0; i < soap_.power_steps; ++i) {
      multiply(next, current);
      if (!values_finite()) return failure(kBadEstimates);
      if (soap_.qr_tolerance > 0 && is_diagonal(next)) break;
      if (i == 0 && soap_.sort == Sort::kBefore) {
        order = sorted(true);
        if (task_.hook != nullptr) task_.hook->order(task_.part, order);
        engine_.permute_columns(other, next, std::span<const int64_t>(order));
        std::swap(other, next);
      }
      if (!orthogonalise(next)) return failure("no QR");
      current = next;
      std::swap(other, next);
    }
    if (current.data == task_.basis.data) return old_basis();
    NewBasis found = finish(other, next);
    found.order = order;
    return found;
  }

  // Eigenvalues of a basis, and its columns by them, in one of the two.
  NewBasis finish(Matrices basis, Matrices spare) {
    NewBasis found{.succeeded = true, .basis = basis};
    if (!wants_eigenvalues()) return found;
    multiply(spare, basis);
    if (!values_finite()) return failure(kBadEstimates);
    if (soap_.sort != Sort::kBefore) {
      reorder(spare, basis, sorted(soap_.sort == Sort::kAfter));
      found.basis = spare;
    }
    found.eigenvalues = values_;
    return found;
  }

  Engine& engine_;
  const SoapOptions& soap_;
  const BasisTask& task_;
  const int64_t n_;
  Matrices values_;
};

}  // namespace

NewBasis find_basis(Engine& engine, const SoapOptions& soap,
                    const BasisTask& task, DType dtype) {
  Arena& arena = engine.arena();
  BasisTask typed = task;
  typed.factor = converted(arena, task.factor, dtype);
  typed.basis = converted(arena, task.basis, dtype);
  NewBasis found = BasisSearch(engine, soap, typed).search();
  if (!found.succeeded) return found;
  const DType own = task.factor.dtype;
  found.basis = converted(arena, found.basis, own);
  if (found.eigenvalues.data != nullptr)
    found.eigenvalues = converted(arena, found.eigenvalues, own);
  if (task.hook != nullptr &&
      !task.hook->basis(task.part, found.basis, found.eigenvalues))
    return failure("refused by a check");
  return found;
}

}  // namespace canzona

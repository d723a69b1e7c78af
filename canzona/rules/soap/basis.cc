#include "canzona/rules/soap/basis.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "canzona/rules/runs.h"

namespace canzona::rules {
namespace {

Matrices like(Arena& arena, Matrices m, DType dtype) {
  if (m.data == nullptr || m.dtype == dtype) return m;
  return arena.matrices(dtype, m.rows, m.cols, m.count);
}

void ask_hook(Engine& engine, const BasisTask& task, const NewBases& found,
              std::span<Outcome> outcomes) {
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) {
      HostCopy basis(engine, found.basis.at(i));
      HostCopy values(engine, found.some(i, 1).eigenvalues);
      if (!task.hook->basis(part_of(task.part, i), basis.view(),
                            values.view())) {
        outcomes[static_cast<size_t>(i)] = {false, "refused by a check"};
        continue;
      }
      basis.put_back();
      values.put_back();
    }
  });
}

}  // namespace

BasisTask BasisTask::some(int64_t begin, int64_t size) const {
  BasisTask some = *this;
  some.factor = factor.part(begin, size);
  some.basis = basis.part(begin, size);
  some.part = part_of(part, begin);
  return some;
}

NewBases NewBases::some(int64_t begin, int64_t size) const {
  NewBases some = *this;
  some.basis = basis.part(begin, size);
  if (eigenvalues.data != nullptr)
    some.eigenvalues = eigenvalues.part(begin, size);
  some.order = {order.data + begin * order.length, order.length, size};
  some.moved =
      moved.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  return some;
}

bool finds_eigenvalues(const SoapOptions& soap) {
  return soap.sort != SoapOptions::Sort::kBefore || soap.keeps_eigenvalues();
}

void find_bases(Engine& engine, const SoapOptions& soap, const BasisTask& task,
                DType dtype, const NewBases& found,
                std::span<Outcome> outcomes) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  BasisTask typed = task;
  typed.factor = in_type(engine, task.factor, dtype);
  typed.basis = in_type(engine, task.basis, dtype);
  NewBases room = found;
  room.basis = like(arena, found.basis, dtype);
  room.eigenvalues = like(arena, found.eigenvalues, dtype);
  BasisSearch(engine, soap, typed, room, outcomes).run();
  if (dtype != found.basis.dtype)
    for_each_success(outcomes, [&](int64_t begin, int64_t size) {
      const NewBases from = room.some(begin, size);
      const NewBases to = found.some(begin, size);
      engine.convert(to.basis, from.basis);
      if (to.eigenvalues.data != nullptr)
        engine.convert(to.eigenvalues, from.eigenvalues);
    });
  if (task.hook != nullptr) ask_hook(engine, task, found, outcomes);
}

namespace {

using Refresh = SoapOptions::Refresh;
using Sort = SoapOptions::Sort;

constexpr const char* kBadEstimates = "eigenvalues that are not finite";

}  // namespace

BasisSearch::BasisSearch(Engine& engine, const SoapOptions& soap,
                         const BasisTask& task, const NewBases& found,
                         std::span<Outcome> outcomes)
    : engine_(engine),
      soap_(soap),
      task_(task),
      found_(found),
      outcomes_(outcomes),
      n_(task.factor.rows),
      count_(task.factor.count),
      values_(scratch(1, count_)),
      states_(count_, State::kGoing) {
  std::fill(found_.moved.begin(), found_.moved.end(), false);
}

void BasisSearch::run() {
  if (task_.by_eigh)
    by_eigh();
  else
    by_power_steps();
  finish();
  require_vectors();
  for_each(State::kFinished, [&](int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i)
      outcomes_[static_cast<size_t>(i)] = {.succeeded = true};
  });
}

Matrices BasisSearch::scratch(int64_t rows, int64_t count) {
  return engine_.arena().matrices(task_.factor.dtype, rows, n_, count);
}

template <class Work>
void BasisSearch::for_each(State state, const Work& work) const {
  for_each_run(
      count_, [&](int64_t i) { return states_[i] == state; }, work);
}

void BasisSearch::fail(int64_t place, const char* reason) {
  states_[place] = State::kFailed;
  outcomes_[static_cast<size_t>(place)] = {false, reason};
}

// to = A·Q, where A are the factors from `begin` on as they are to be
// decomposed; also estimates their eigenvalues, the diagonal of QᵀAQ.
void BasisSearch::multiply(int64_t begin, Matrices to, ConstMatrices q) {
  engine_.product(to, task_.factor_scale, task_.factor.part(begin, q.count),
                  Op::kNone, q, Op::kNone, 0.0);
  if (soap_.qr_regularised && soap_.eigen_reg != 0)
    engine_.axpby(to, soap_.eigen_reg, q, 1.0);
  engine_.column_dots(values_.part(begin, q.count), q, to);
}

// Sorts by the estimates into the orders.
void BasisSearch::sort(int64_t begin, int64_t size, bool falling) {
  engine_.sort(found_.some(begin, size).order, values_.part(begin, size),
               falling);
}

// One order shared by all factors.
Orders BasisSearch::reversed() {
  constexpr int64_t kAtOnce = 256;
  int64_t piece[kAtOnce];
  auto* order = engine_.arena().take_array<int64_t>(n_);
  for (int64_t begin = 0; begin < n_; begin += kAtOnce) {
    const int64_t size = std::min(kAtOnce, n_ - begin);
    for (int64_t i = 0; i < size; ++i) piece[i] = n_ - 1 - begin - i;
    engine_.upload(reinterpret_cast<std::byte*>(order + begin),
                   reinterpret_cast<const std::byte*>(piece),
                   size * static_cast<int64_t>(sizeof(int64_t)));
  }
  return {order, n_, 1};
}

void BasisSearch::let_hook_order(int64_t begin, int64_t size) {
  if (task_.hook == nullptr) return;
  std::vector<int64_t> here(static_cast<size_t>(n_));
  auto* bytes = reinterpret_cast<std::byte*>(here.data());
  const int64_t num_bytes = n_ * static_cast<int64_t>(sizeof(int64_t));
  for (int64_t i = begin; i < begin + size; ++i) {
    auto* there = reinterpret_cast<std::byte*>(found_.order.data + i * n_);
    engine_.download(bytes, there, num_bytes);
    task_.hook->order(part_of(task_.part, i), here);
    engine_.upload(there, bytes, num_bytes);
  }
}

void BasisSearch::require_estimates(State state) {
  PerTensor<bool> finite(count_, true);
  for_each(state, [&](int64_t begin, int64_t size) {
    engine_.finite(values_.part(begin, size), finite.span(begin, size));
  });
  for (int64_t i = 0; i < count_; ++i)
    if (!finite[i]) fail(i, kBadEstimates);
}

// True where A·Q and the estimates say that QᵀAQ is diagonal enough. Q is
// orthogonal, so QᵀAQ has the norm of A·Q; what its diagonal lacks of that is
// off the diagonal.
PerTensor<bool> BasisSearch::diagonal_ones(ConstMatrices product, int64_t begin,
                                           int64_t size) {
  PerTensor<double> lengths(size);
  PerTensor<double> diagonals(size);
  engine_.norms(product.part(begin, size), lengths.span());
  engine_.norms(values_.part(begin, size), diagonals.span());
  PerTensor<bool> are(size);
  for (int64_t i = 0; i < size; ++i) {
    const double off = lengths[i] * lengths[i] - diagonals[i] * diagonals[i];
    are[i] = std::sqrt(std::max(off, 0.0)) <= soap_.qr_tolerance * lengths[i];
  }
  return are;
}

// Keeps `current` as the basis of factors that it makes diagonal enough.
void BasisSearch::keep_diagonal_ones(ConstMatrices product,
                                     ConstMatrices current) {
  PerTensor<bool> kept(count_);
  for_each(State::kGoing, [&](int64_t begin, int64_t size) {
    const PerTensor<bool> are = diagonal_ones(product, begin, size);
    for (int64_t i = 0; i < size; ++i) kept[begin + i] = are[i];
  });
  for_each_run(
      count_, [&](int64_t i) { return kept[i]; },
      [&](int64_t begin, int64_t size) {
        engine_.copy(found_.basis.part(begin, size), current.part(begin, size));
        for (int64_t i = 0; i < size; ++i) end(begin + i, State::kFound);
      });
}

void BasisSearch::by_eigh() {
  const Matrices vectors = scratch(n_, count_);
  if (soap_.qr_tolerance > 0 && !task_.is_first) {
    multiply(0, vectors, task_.basis);
    keep_diagonal_ones(vectors, task_.basis);
  }
  const bool turn = soap_.sort != Sort::kAscending;
  const ConstOrders falling = turn ? reversed() : Orders{};
  for_each(State::kGoing, [&](int64_t begin, int64_t size) {
    const Matrices some = vectors.part(begin, size);
    const Matrices values = values_.part(begin, size);
    const NewBases found = found_.some(begin, size);
    engine_.axpby(some, task_.factor_scale, task_.factor.part(begin, size),
                  0.0);
    if (soap_.eigen_reg != 0) engine_.add_diagonal(some, soap_.eigen_reg);
    PerTensor<bool> succeeded(size);
    engine_.eigh(some, values, succeeded.span());
    const auto put = [&](Matrices to, ConstMatrices from) {
      if (to.data == nullptr) return;
      if (turn)
        engine_.permute_columns(to, from, falling);
      else
        engine_.copy(to, from);
    };
    put(found.basis, some);
    put(found.eigenvalues, values);
    for (int64_t i = 0; i < size; ++i) {
      if (succeeded[i])
        end(begin + i, State::kFinished);
      else
        fail(begin + i, "the eigendecomposition failed");
    }
  });
}

void BasisSearch::by_power_steps() {
  Matrices next = scratch(n_, count_);
  Matrices other = scratch(n_, count_);
  ConstMatrices current = task_.basis;
  for (int64_t step = 0; step < soap_.power_steps; ++step) {
    for_each(State::kGoing, [&](int64_t begin, int64_t size) {
      multiply(begin, next.part(begin, size), current.part(begin, size));
    });
    require_estimates(State::kGoing);
    if (soap_.qr_tolerance > 0) keep_diagonal_ones(next, current);
    if (step == 0 && soap_.sort == Sort::kBefore) {
      permute_columns(other, next);
      std::swap(other, next);
    }
    orthogonalise(next);
    current = next;
    std::swap(other, next);
  }
  for_each(State::kGoing, [&](int64_t begin, int64_t size) {
    engine_.copy(found_.basis.part(begin, size), current.part(begin, size));
    for (int64_t i = 0; i < size; ++i) end(begin + i, State::kFound);
  });
}

// Orders columns by descending estimates.
void BasisSearch::permute_columns(Matrices to, ConstMatrices from) {
  for_each(State::kGoing, [&](int64_t begin, int64_t size) {
    sort(begin, size, true);
    let_hook_order(begin, size);
    const NewBases found = found_.some(begin, size);
    engine_.permute_columns(to.part(begin, size), from.part(begin, size),
                            found.order);
    std::fill(found.moved.begin(), found.moved.end(), true);
  });
}

void BasisSearch::orthogonalise(Matrices a) {
  for_each(State::kGoing, [&](int64_t begin, int64_t size) {
    const Arena::Scope scope(engine_.arena());
    orthogonalise_run(a.part(begin, size), begin);
  });
}

void BasisSearch::orthogonalise_run(Matrices a, int64_t begin) {
  PerTensor<bool> succeeded(a.count);
  if (soap_.refresh == Refresh::kCholeskyQr) {
    const Matrices copy = scratch(n_, a.count);
    engine_.copy(copy, a);
    engine_.cholesky_qr(a, succeeded.span());
    const PerTensor<bool> done = succeeded;
    for_each_run(
        a.count, [&](int64_t i) { return !done[i]; },
        [&](int64_t first, int64_t size) {
          engine_.copy(a.part(first, size), copy.part(first, size));
          engine_.qr(a.part(first, size), succeeded.span(first, size));
        });
  } else {
    engine_.qr(a, succeeded.span());
  }
  for (int64_t i = 0; i < a.count; ++i)
    if (!succeeded[i]) fail(begin + i, "the QR decomposition failed");
}

// Computes the eigenvalues of the bases found and sorts columns by them.
void BasisSearch::finish() {
  if (finds_eigenvalues(soap_)) {
    const Matrices spare = scratch(n_, count_);
    for_each(State::kFound, [&](int64_t begin, int64_t size) {
      multiply(begin, spare.part(begin, size), found_.basis.part(begin, size));
    });
    require_estimates(State::kFound);
    for_each(State::kFound, [&](int64_t begin, int64_t size) {
      const NewBases found = found_.some(begin, size);
      const Matrices values = values_.part(begin, size);
      if (soap_.sort == Sort::kBefore)
        return engine_.copy(found.eigenvalues, values);
      sort(begin, size, soap_.sort == Sort::kAfter);
      const Matrices sorted = spare.part(begin, size);
      engine_.permute_columns(sorted, found.basis, found.order);
      engine_.copy(found.basis, sorted);
      engine_.permute_columns(found.eigenvalues, values, found.order);
    });
  }
  for_each(State::kFound, [&](int64_t begin, int64_t size) {
    for (int64_t i = 0; i < size; ++i) end(begin + i, State::kFinished);
  });
}

void BasisSearch::require_vectors() {
  PerTensor<bool> finite(count_, true);
  for_each(State::kFinished, [&](int64_t begin, int64_t size) {
    engine_.finite(found_.basis.part(begin, size), finite.span(begin, size));
  });
  for (int64_t i = 0; i < count_; ++i)
    if (!finite[i]) fail(i, "vectors that are not finite");
}

}  // namespace canzona::rules

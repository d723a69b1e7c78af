// Decompositions and solves of the CUDA engine. The libraries count columns
// where we count rows: a symmetric matrix is the same for both, a lower factor
// is its upper one, and QR is given a transposed copy.
#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/dense_kernels.h"
#include "canzona/linalg/cuda/solvers.h"

namespace canzona {
namespace {

void check_square(const Matrices& a) {
  CANZONA_CHECK_EQ(a.rows, a.cols, "square");
}

void check_results(std::span<bool> succeeded, const Matrices& a) {
  CANZONA_CHECK_EQ(succeeded.size(), a.count, "results of a decomposition");
}

// Nothing to do, and done.
bool is_empty(const Matrices& a, std::span<bool> succeeded) {
  if (a.cols != 0 && a.count != 0) return false;
  std::ranges::fill(succeeded, true);
  return true;
}

void tell(CudaEngine& engine, const int32_t* info, std::span<bool> succeeded) {
  const auto found =
      engine.results(info, static_cast<int64_t>(succeeded.size()));
  std::ranges::transform(found, succeeded.begin(),
                         [](int32_t failure) { return failure == 0; });
}

}  // namespace

void CudaEngine::eigh(Matrices a, Matrices values, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  CANZONA_CHECK_EQ(values.cols, a.rows, "eigenvalues");
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  auto* info = arena().take_array<int32_t>(a.count);
  const Matrices vectors =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(vectors, a);
  solve_eigh(*this, vectors, values, info);
  launch_transpose(*this, a, vectors);
  tell(*this, info, succeeded);
}

void CudaEngine::qr(Matrices a, std::span<bool> succeeded) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
  check_results(succeeded, a);
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  auto* info = arena().take_array<int32_t>(a.count);
  const Matrices columns =
      tidy_matrices(arena(), a.dtype, a.cols, a.rows, a.count);
  launch_transpose(*this, columns, a);
  solve_qr(*this, columns, info);
  launch_transpose(*this, a, columns);
  tell(*this, info, succeeded);
}

void CudaEngine::cholesky(Matrices a, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  auto* info = arena().take_array<int32_t>(a.count);
  const Matrices factor =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(factor, a);
  solve_cholesky(*this, factor, info);
  launch_clear_above(*this, factor);
  copy(a, factor);
  tell(*this, info, succeeded);
}

void CudaEngine::solve_right_transposed(Matrices b, ConstMatrices l) {
  CANZONA_CHECK_EQ(l.rows, l.cols, "square");
  CANZONA_CHECK_EQ(b.cols, l.rows, "columns");
  CANZONA_CHECK_EQ(b.count, l.count, "matrices in a batch");
  CANZONA_CHECK(b.dtype == l.dtype, "types of a solve");
  if (b.elements() == 0 || b.count == 0) return;
  Arena::Scope scope(arena());
  Matrices right = b;
  ConstMatrices factor = l;
  if (!is_tidy(b)) {
    right = tidy_matrices(arena(), b.dtype, b.rows, b.cols, b.count);
    copy(right, b);
  }
  if (!is_tidy(l)) {
    const Matrices tidy =
        tidy_matrices(arena(), l.dtype, l.rows, l.cols, l.count);
    copy(tidy, l);
    factor = tidy;
  }
  solve_triangular(*this, right, factor);
  if (right.data != b.data) copy(b, right);
}

}  // namespace canzona

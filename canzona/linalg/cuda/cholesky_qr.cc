// Shifted Cholesky QR on a GPU, all matrices of a batch at once. What decides
// on success stays on the device until the end.
#include <algorithm>
#include <limits>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cholesky_qr_kernels.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/inverse_factor.h"
#include "canzona/linalg/cuda/norms.h"
#include "canzona/linalg/cuda/solvers.h"

namespace canzona {
namespace {

// Scaling columns by positive numbers leaves the orthogonal factor alone, so
// every round begins by making them of length 1.
class CholeskyQr {
 public:
  CholeskyQr(CudaEngine& engine, Matrices a)
      : engine_(engine),
        a_(a),
        other_(tidy_matrices(engine.arena(), a.dtype, a.rows, a.cols, a.count)),
        gram_(tidy_matrices(engine.arena(), a.dtype, a.cols, a.cols, a.count)),
        inverse_(
            tidy_matrices(engine.arena(), a.dtype, a.cols, a.cols, a.count)),
        info_(engine.arena().take_array<int32_t>(a.count)),
        squares_(engine.arena().take_array<double>(a.cols * a.count)) {
    Arena& arena = engine.arena();
    state_.cols = a.cols;
    state_.count = a.count;
    state_.hopeless = arena.take_array<int32_t>(a.count);
    state_.lengths = arena.take_array<double>(a.cols * a.count);
    state_.distances = arena.take_array<double>(a.cols * a.count);
  }

  // The shift keeps the first factor from breaking down. What it leaves is
  // well conditioned, and two plain rounds make that orthonormal. Gives, for
  // each matrix, whether it failed.
  const int32_t* run() {
    // Three rounds would leave the result in the other room.
    engine_.copy(other_, a_);
    std::swap(a_, other_);
    launch_begin(engine_, state_);
    launch_bring_into_range(engine_, state_, a_);
    normalise_columns(false);
    orthogonalise(shift(), false);
    normalise_columns(true);
    orthogonalise(0, false);
    normalise_columns(true);
    orthogonalise(0, true);
    launch_require_distance(engine_, state_, noise());
    return state_.hopeless;
  }

 private:
  // Between rounds: what a column has lost in length it had in common with
  // those before it.
  void normalise_columns(bool follow) {
    column_sums_on_device(engine_, squares_, a_, a_);
    launch_take_lengths(engine_, state_, squares_, follow);
    launch_normalise(engine_, state_, a_);
  }

  // A = A·R⁻¹ for the factor R of AᵀA + shift·I. The last round must find
  // little to do: it squares what is missing, down to rounding.
  void orthogonalise(double shift, bool last) {
    engine_.symmetric_product(gram_, 1, a_, Op::kTranspose, 0);
    if (last) launch_require_near_identity(engine_, state_, gram_);
    if (shift != 0) engine_.add_diagonal(gram_, shift);
    invert_factor(engine_, gram_, inverse_, info_);
    launch_take_factor(engine_, state_, info_, gram_);
    engine_.product(other_, 1, a_, Op::kNone, inverse_, Op::kTranspose, 0);
    std::swap(a_, other_);
  }

  // A column that lies in the span of the others comes out as the rounding of
  // one or two operations, stretched to length 1.
  double noise() const {
    return a_.dtype == DType::kFp32
               ? 8 * double{std::numeric_limits<float>::epsilon()}
               : 8 * std::numeric_limits<double>::epsilon();
  }

  // For columns of length 1. In fp32 the shift that theory asks for would be
  // as large as the matrix; a hundred roundings have proved enough.
  double shift() const {
    if (a_.dtype == DType::kFp32) return 1e-5;
    const auto m = static_cast<double>(a_.rows);
    const auto n = static_cast<double>(a_.cols);
    constexpr double kUnit = std::numeric_limits<double>::epsilon() / 2;
    return 11 * (m * n + n * (n + 1)) * kUnit * n;
  }

  CudaEngine& engine_;
  Matrices a_;
  Matrices other_;
  Matrices gram_;
  Matrices inverse_;
  int32_t* info_;
  double* squares_;
  CholeskyQrState state_;
};

}  // namespace

void CudaEngine::cholesky_qr(Matrices a, std::span<bool> succeeded) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
  CANZONA_CHECK_EQ(succeeded.size(), a.count, "results of a decomposition");
  needs_results();
  if (a.cols == 0 || a.count == 0) {
    std::ranges::fill(succeeded, true);
    return;
  }
  Arena::Scope scope(arena());
  const Matrices tidy =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(tidy, a);
  const Products wanted = std::exchange(products_, Products::kPlain);
  const int32_t* hopeless = nullptr;
  try {
    hopeless = CholeskyQr(*this, tidy).run();
  } catch (...) {
    products_ = wanted;
    throw;
  }
  products_ = wanted;
  copy(a, tidy);
  const auto failures = results(hopeless, a.count);
  std::ranges::transform(failures, succeeded.begin(),
                         [](int32_t failure) { return failure == 0; });
}

}  // namespace canzona

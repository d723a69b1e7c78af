#include "canzona/linalg/cpu/cpu_engine.h"

#include <algorithm>
#include <cstring>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/lapack.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/cpu/reductions.h"
#include "canzona/linalg/cpu/stages/stages.h"
#include "canzona/linalg/cpu/transpose.h"

namespace canzona::linalg {
namespace {

void store_weights(uint16_t* rounded, Run weights, int64_t count) {
  if (rounded == nullptr) return;
  CANZONA_CHECK(weights.dtype == DType::kFp32, "rounded copies are of fp32");
  cpu_round_weights(rounded, reinterpret_cast<const float*>(weights.data),
                    count);
}

}  // namespace

CpuEngine::CpuEngine(Bf16Kernel kernel)
    : Engine(host_memory()),
      bf16_kernel_(kernel),
      fp64_(make_real_algebra<double>()),
      fp32_(make_real_algebra<float>()),
      bf16_(make_bf16_algebra(kernel)) {
  bf16_->normalize_small_by(*fp32_, arena());
}

std::string CpuEngine::describe() const {
  const BlasInfo blas = blas_info();
  return cat(blas.library, " ", blas.core, ", bf16 by ",
             to_string(bf16_kernel_));
}

Algebra& CpuEngine::algebra(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return *fp64_;
    case DType::kFp32:
      return *fp32_;
    case DType::kBf16:
      return *bf16_;
    default:
      break;
  }
  throw UsageError("a CPU has no products in fp16; it has fp64, fp32 and bf16");
}

void CpuEngine::norms(ConstMatrices a, std::span<double> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "norms");
  for_each_matrix(
      [&](auto one, int64_t i) {
        results[static_cast<size_t>(i)] = frobenius_norm(one);
      },
      a);
}

void CpuEngine::max_abs(ConstMatrices a, std::span<double> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "largest magnitudes");
  for_each_matrix(
      [&](auto one, int64_t i) {
        results[static_cast<size_t>(i)] = largest_magnitude_of(one);
      },
      a);
}

void CpuEngine::traces(ConstMatrices a, std::span<double> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "traces");
  for_each_matrix(
      [&](auto one, int64_t i) {
        results[static_cast<size_t>(i)] = trace_of(one);
      },
      a);
}

bool CpuEngine::all_finite(ConstRun run, int64_t count) {
  return cpu_all_finite(run, count);
}

void CpuEngine::finite(ConstMatrices a, std::span<bool> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "results");
  for_each_matrix(
      [&](auto one, int64_t i) {
        bool all = true;
        for (int64_t row = 0; row < one.rows && all; ++row)
          all = cpu_all_finite(run_of(one.row(row)), one.cols);
        results[static_cast<size_t>(i)] = all;
      },
      a);
}

namespace {

// Calls work(run, count) with the whole run or, if it is bf16, with one piece
// after another in fp32.
template <class Work>
void in_fp32(const Engine::Stretch& stretch, const Work& work) {
  if (stretch.run.dtype != DType::kBf16)
    return work(stretch.run, stretch.count);
  constexpr int64_t kAtOnce = 2048;
  float wide[kAtOnce];
  const auto* from = reinterpret_cast<const uint16_t*>(stretch.run.data);
  for (int64_t i = 0; i < stretch.count; i += kAtOnce) {
    const int64_t count = std::min(kAtOnce, stretch.count - i);
    cpu_widen_bf16(wide, from + i, count);
    work(run_of(static_cast<const float*>(wide)), count);
  }
}

}  // namespace

void CpuEngine::find_nonfinite(int32_t* first, std::span<const Stretch> runs) {
  *first = 0;
  for (size_t i = 0; i < runs.size() && *first == 0; ++i)
    in_fp32(runs[i], [&](ConstRun run, int64_t count) {
      if (!cpu_all_finite(run, count)) *first = static_cast<int32_t>(i) + 1;
    });
}

uint32_t CpuEngine::largest_bits(std::span<const Stretch> runs) {
  uint32_t largest = 0;
  for (const Stretch& s : runs)
    in_fp32(s, [&](ConstRun run, int64_t count) {
      largest = std::max(largest, cpu_largest_bits(run, count));
    });
  return largest;
}

uint32_t CpuEngine::scale_and_look(std::span<const ScaledStretch> runs,
                                   double factor) {
  uint32_t largest = 0;
  for (const ScaledStretch& s : runs)
    largest = std::max(largest, cpu_scale_and_look(s.run, factor, s.count));
  return largest;
}

WideSum CpuEngine::sum_of_squares(std::span<const Stretch> runs, int exponent) {
  WideSum sum;
  for (const Stretch& s : runs)
    in_fp32(s, [&](ConstRun run, int64_t count) {
      sum.add(cpu_sum_of_squares(run, count, exponent));
    });
  return sum;
}

void CpuEngine::scale_by(Run run, const double* factor, int64_t count) {
  if (run.dtype != DType::kBf16) return scale(run, *factor, count);
  constexpr int64_t kAtOnce = 2048;
  float wide[kAtOnce];
  auto* data = reinterpret_cast<uint16_t*>(run.data);
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t some = std::min(kAtOnce, count - i);
    cpu_widen_bf16(wide, data + i, some);
    cpu_axpby(run_of(wide), *factor, run_of(wide), 0, some);
    cpu_round_to_bf16(data + i, wide, some);
  }
}

void CpuEngine::column_dots(Matrices values, ConstMatrices a, ConstMatrices b) {
  check_same_shape(a, b);
  CANZONA_CHECK_EQ(values.cols, a.cols, "columns");
  for_each_matrix(
      [](auto to, auto x, auto y, int64_t) { dot_columns(to.data, x, y); },
      values, a, b);
}

void CpuEngine::momentum(const MomentumStage& stage, int64_t count) {
  cpu_momentum(stage, count);
}

void CpuEngine::apply(Run weights, ConstRun update, const Apply& apply,
                      int64_t count, uint16_t* rounded) {
  cpu_apply(weights, update, apply, count);
  store_weights(rounded, weights, count);
}

void CpuEngine::adam(ConstRun grad, Run m, Run v, Run out,
                     const AdamCoefficients& adam, int64_t count) {
  cpu_adam(grad, m, v, out, adam, count);
}

void CpuEngine::adam_apply(std::span<const AdamRuns> tensors,
                           const AdamCoefficients& adam, const Apply& apply) {
  CANZONA_CHECK(!apply.cautious, "cautious decay of Adam in one pass");
  for (const AdamRuns& t : tensors) {
    cpu_adam_apply(t.grad, t.m, t.v, t.weights, adam, apply, t.count);
    store_weights(t.rounded, t.weights, t.count);
  }
}

void CpuEngine::round_weights(uint16_t* to, const float* from, int64_t count) {
  cpu_round_weights(to, from, count);
}

void CpuEngine::split_masters(uint16_t* weights, uint16_t* remainders,
                              const float* from, int64_t count) {
  cpu_split_masters(weights, remainders, from, count);
}

void CpuEngine::join_masters(float* to, const uint16_t* weights,
                             const uint16_t* remainders, int64_t count) {
  cpu_join_masters(to, weights, remainders, count);
}

}  // namespace canzona::linalg

namespace canzona {
using namespace linalg;

std::unique_ptr<Engine> make_cpu_engine() {
  return make_cpu_engine(usable_bf16_kernels().front());
}

std::unique_ptr<Engine> make_cpu_engine(Bf16Kernel kernel) {
  return std::make_unique<CpuEngine>(kernel);
}

// Copies on a CPU, where everything is complete when a call returns.

}  // namespace canzona

namespace canzona::linalg {

void CpuEngine::upload(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuEngine::download(std::byte* to, const std::byte* from, int64_t bytes) {
  upload(to, from, bytes);
}

void CpuEngine::set_zero(std::byte* to, int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

// Products and solves of the CPU engine.

void CpuEngine::product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                        ConstMatrices b, Op op_b, double beta) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> left,
                      ConstView<Real> right, int64_t) {
        linalg::product(to, static_cast<Real>(alpha), left, op_a, right, op_b,
                        static_cast<Real>(beta));
      },
      c, a, b);
}

void CpuEngine::symmetric_product(Matrices c, double alpha, ConstMatrices a,
                                  Op op_a, double beta) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> from, int64_t) {
        square_lower(to, static_cast<Real>(alpha), from, op_a,
                     static_cast<Real>(beta));
        mirror_lower(to);
      },
      c, a);
}

void CpuEngine::commuting_product(Matrices c, ConstMatrices a,
                                  ConstMatrices b) {
  for_each_matrix(
      [this]<class Real>(View<Real> to, ConstView<Real> left,
                         ConstView<Real> right, int64_t) {
        product_lower(packing_, to, left, right);
        mirror_lower(to);
      },
      c, a, b);
}

void CpuEngine::solve_right_transposed(Matrices b, ConstMatrices l) {
  for_each_matrix(
      []<class Real>(View<Real> right, ConstView<Real> factor, int64_t) {
        solve_lower_transposed(right, factor);
      },
      b, l);
}

namespace {

// Decompositions of the CPU engine. LAPACK is column-major and we are
// row-major: a symmetric matrix is the same for both, a lower factor is its
// upper one, and QR gets a transposed copy. LAPACK works in the arena, so that
// results cannot depend on the matrix's alignment.

template <class Real>
View<Real> scratch(Arena& arena, int64_t rows, int64_t cols) {
  return view_of<Real>(arena.matrices(DTypeOf<Real>::value, rows, cols));
}

template <class Real>
View<Real> scratch_copy(Arena& arena, View<Real> a) {
  const View<Real> copy = scratch<Real>(arena, a.rows, a.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    std::copy_n(a.row(i), a.cols, copy.row(i));
  return copy;
}

template <class Real>
bool eigh_one(Arena& arena, View<Real> a, View<Real> values) {
  if (a.rows == 0) return true;
  const View<Real> vectors = scratch_copy(arena, a);
  if (!lapack_eigh(arena, blas_int(a.rows), vectors.data, values.data))
    return false;
  transpose<Real>(a, vectors);
  return true;
}

template <class Real>
bool qr_one(Arena& arena, View<Real> a) {
  if (a.cols == 0) return true;
  const View<Real> columns = scratch<Real>(arena, a.cols, a.rows);
  transpose<Real>(columns, a);
  if (!lapack_qr(arena, blas_int(a.rows), blas_int(a.cols), columns.data))
    return false;
  transpose<Real>(a, columns);
  return true;
}

template <class Real>
bool cholesky_one(Arena& arena, View<Real> a) {
  if (a.rows == 0) return true;
  const View<Real> factor = scratch_copy(arena, a);
  if (!lapack_cholesky(blas_int(a.rows), factor.data, blas_int(a.rows)))
    return false;
  for (int64_t i = 0; i < a.rows; ++i) {
    std::copy_n(factor.row(i), i + 1, a.row(i));
    std::fill(a.row(i) + i + 1, a.row(i) + a.cols, Real{0});
  }
  return true;
}

void check_square(const Matrices& a) {
  CANZONA_CHECK_EQ(a.rows, a.cols, "square");
}

void check_tall(const Matrices& a) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
}

void check_results(std::span<bool> succeeded, const Matrices& a) {
  CANZONA_CHECK_EQ(succeeded.size(), a.count, "results of a decomposition");
}

}  // namespace

void CpuEngine::eigh(Matrices a, Matrices values, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  CANZONA_CHECK_EQ(values.cols, a.rows, "eigenvalues");
  for_each_matrix(
      [&](auto one, auto its_values, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = eigh_one(arena(), one, its_values);
      },
      a, values);
}

void CpuEngine::qr(Matrices a, std::span<bool> succeeded) {
  check_tall(a);
  check_results(succeeded, a);
  for_each_matrix(
      [&](auto one, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = qr_one(arena(), one);
      },
      a);
}

void CpuEngine::cholesky_qr(Matrices a, std::span<bool> succeeded) {
  check_tall(a);
  check_results(succeeded, a);
  for_each_matrix(
      [&](auto one, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = cholesky_qr_one(arena(), one);
      },
      a);
}

void CpuEngine::cholesky(Matrices a, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  for_each_matrix(
      [&](auto one, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = cholesky_one(arena(), one);
      },
      a);
}

}  // namespace canzona::linalg

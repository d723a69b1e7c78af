#include "canzona/linalg/cpu/cpu_engine.h"

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cpu/batch.h"
#include "canzona/linalg/cpu/bf16/algebra.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/real_algebra.h"
#include "canzona/linalg/cpu/reductions.h"
#include "canzona/linalg/cpu/stages/stages.h"

namespace canzona {

CpuEngine::CpuEngine(Bf16Kernel kernel)
    : bf16_kernel_(kernel),
      fp64_(make_real_algebra<double>()),
      fp32_(make_real_algebra<float>()),
      bf16_(make_bf16_algebra(kernel)) {}

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
      break;
  }
  return *bf16_;
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
                      int64_t count) {
  cpu_apply(weights, update, apply, count);
}

void CpuEngine::adam(ConstRun grad, Run m, Run v, Run out,
                     const AdamCoefficients& adam, int64_t count) {
  cpu_adam(grad, m, v, out, adam, count);
}

void CpuEngine::adam_apply(ConstRun grad, Run m, Run v, Run weights,
                           const AdamCoefficients& adam, const Apply& apply,
                           int64_t count) {
  cpu_adam_apply(grad, m, v, weights, adam, apply, count);
}

void CpuEngine::round_to_bf16(uint16_t* to, const float* from, int64_t count) {
  cpu_round_to_bf16(to, from, count);
}

std::unique_ptr<Engine> make_cpu_engine() {
  return make_cpu_engine(usable_bf16_kernels().front());
}

std::unique_ptr<Engine> make_cpu_engine(Bf16Kernel kernel) {
  return std::make_unique<CpuEngine>(kernel);
}

}  // namespace canzona

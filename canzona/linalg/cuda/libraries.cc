#include "canzona/linalg/cuda/libraries.h"

#include <algorithm>
#include <array>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona::linalg {

void check_cublas(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw InternalError(cat(what, ": ", cublasGetStatusString(status), " (",
                          cublasGetStatusName(status), ")"));
}

void check_cusolver(cusolverStatus_t status, std::string_view what) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw InternalError(
      cat(what, ": cuSOLVER failed with status ", static_cast<int>(status)));
}

std::string cublas_version() {
  const auto version = static_cast<int>(cublasLtGetVersion());
  return cat("cuBLAS ", version / 10000, ".", version / 100 % 100, ".",
             version % 100);
}

Libraries::~Libraries() {
  if (cusolver_params_ != nullptr) cusolverDnDestroyParams(cusolver_params_);
  if (cusolver_ != nullptr) cusolverDnDestroy(cusolver_);
  if (cublas_lt_ != nullptr) cublasLtDestroy(cublas_lt_);
  if (cublas_ != nullptr) cublasDestroy(cublas_);
}

cublasHandle_t Libraries::cublas() {
  if (cublas_ == nullptr) {
    check_cublas(cublasCreate(&cublas_), "cublasCreate");
    check_cublas(cublasSetPointerMode(cublas_, CUBLAS_POINTER_MODE_DEVICE),
                 "cublasSetPointerMode");
    check_cublas(cublasSetAtomicsMode(cublas_, CUBLAS_ATOMICS_NOT_ALLOWED),
                 "cublasSetAtomicsMode");
  }
  return cublas_;
}

cublasLtHandle_t Libraries::cublas_lt() {
  if (cublas_lt_ == nullptr)
    check_cublas(cublasLtCreate(&cublas_lt_), "cublasLtCreate");
  return cublas_lt_;
}

cusolverDnHandle_t Libraries::cusolver() {
  if (cusolver_ == nullptr) {
    check_cusolver(cusolverDnCreate(&cusolver_), "cusolverDnCreate");
    check_cusolver(cusolverDnSetDeterministicMode(
                       cusolver_, CUSOLVER_DETERMINISTIC_RESULTS),
                   "cusolverDnSetDeterministicMode");
  }
  return cusolver_;
}

cusolverDnParams_t Libraries::cusolver_params() {
  if (cusolver_params_ == nullptr)
    check_cusolver(cusolverDnCreateParams(&cusolver_params_),
                   "cusolverDnCreateParams");
  return cusolver_params_;
}

namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return CUDA_R_64F;
    case DType::kFp32:
      return CUDA_R_32F;
    case DType::kBf16:
      return CUDA_R_16BF;
    default:
      break;
  }
  return CUDA_R_16F;
}

cublasOperation_t operation(Op op) {
  return op == Op::kNone ? CUBLAS_OP_N : CUBLAS_OP_T;
}

// cuBLAS is column-major and we are row-major: it gets Bᵀ·Aᵀ = Cᵀ, whose
// operands are stored as B and A are.
class Description {
 public:
  explicit Description(const ProductShape& shape) {
    const bool is_double = shape.out == DType::kFp64;
    check_cublas(
        cublasLtMatmulDescInit(
            &desc_, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
            is_double ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(shape.op_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(shape.op_a));
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  }
  cublasLtMatmulDesc_t get() { return &desc_; }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check_cublas(
        cublasLtMatmulDescSetAttribute(&desc_, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDescOpaque_t desc_;
};

class Layout {
 public:
  template <class View>
  explicit Layout(const View& m) {
    check_cublas(
        cublasLtMatrixLayoutInit(
            &layout_, data_type(m.dtype), static_cast<uint64_t>(m.cols),
            static_cast<uint64_t>(m.rows),
            m.rows <= 1 ? m.cols : std::max(m.row_stride, m.cols)),
        "cublasLtMatrixLayoutInit");
    if (m.count == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(m.count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.matrix_stride);
  }
  cublasLtMatrixLayout_t get() { return &layout_; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check_cublas(cublasLtMatrixLayoutSetAttribute(&layout_, attribute, &value,
                                                  sizeof value),
                 "cublasLtMatrixLayoutSetAttribute");
  }
  cublasLtMatrixLayoutOpaque_t layout_;
};

class Preference {
 public:
  Preference(const ProductShape& shape, bool alone) {
    check_cublas(cublasLtMatmulPreferenceInit(&preference_),
                 "cublasLtMatmulPreferenceInit");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        alone ? uint64_t{CudaEngine::kWorkspaceBytes} : uint64_t{0});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    const auto alignment = [](DType dtype, bool wide) {
      return wide ? uint32_t{16} : static_cast<uint32_t>(size_of(dtype));
    };
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        alignment(shape.in, shape.wide_b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        alignment(shape.in, shape.wide_a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        alignment(shape.out, shape.wide_c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        alignment(shape.out, shape.wide_c));
  }
  cublasLtMatmulPreference_t get() { return &preference_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference_, attribute,
                                                      &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreferenceOpaque_t preference_;
};

// A typical layout of an operand: rows are 16-byte aligned in the wide case,
// and unaligned otherwise.
Layout typical_layout(DType dtype, int64_t rows, int64_t cols, Op op, bool wide,
                      int64_t count) {
  ConstMatrices m;
  m.dtype = dtype;
  m.rows = op == Op::kNone ? rows : cols;
  m.cols = op == Op::kNone ? cols : rows;
  const int64_t step = wide ? 16 / size_of(dtype) : 1;
  m.row_stride = (m.cols + step - 1) / step * step;
  m.count = count;
  m.matrix_stride = m.rows * m.row_stride;
  return Layout(m);
}

// A product of `count` such matrices.
struct Typical {
  Typical(const ProductShape& s, int64_t count)
      : a(typical_layout(s.in, s.m, s.k, s.op_a, s.wide_a, count)),
        b(typical_layout(s.in, s.k, s.n, s.op_b, s.wide_b, count)),
        c(typical_layout(s.out, s.m, s.n, Op::kNone, s.wide_c, count)) {}
  Layout a, b, c;
};

// Sums that are not split have the same order in a batch, if the algorithm
// supports batches.
bool takes_batches(cublasLtHandle_t handle, const ProductShape& shape,
                   const cublasLtMatmulHeuristicResult_t& result) {
  int32_t splits = 0;
  size_t written = 0;
  const cublasStatus_t known = cublasLtMatmulAlgoConfigGetAttribute(
      &result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits,
      &written);
  if (known == CUBLAS_STATUS_SUCCESS && splits > 1) return false;
  Description description(shape);
  Typical two(shape, 2);
  cublasLtMatmulHeuristicResult_t checked = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle, description.get(), two.b.get(), two.a.get(), two.c.get(),
      two.c.get(), &result.algo, &checked);
  return status == CUBLAS_STATUS_SUCCESS && checked.workspaceSize == 0;
}

}  // namespace

void LtProducts::prepare(const ProductShape& shape) {
  if (!choices_.contains(shape)) choices_.emplace(shape, choose(shape));
}

// The best algorithm for one matrix may not support batches; the same query for
// a few matrices has other answers. The numbers are fixed, so only the shape
// decides. If no algorithm supports batches, matrices are multiplied one by
// one.
LtProducts::Choice LtProducts::choose(const ProductShape& shape) {
  if (!shape.is_alone)
    for (int64_t nominal :
         {shape.usual_count, int64_t{1}, int64_t{4}, int64_t{16}, int64_t{64}})
      if (const auto found = find_algorithm(shape, nominal, false))
        return {*found, false};
  if (const auto found = find_algorithm(shape, 1, true)) {
    engine_.workspace();  // allocated now, since a capture must not
    return {*found, true};
  }
  throw InternalError(cat("cuBLASLt has no algorithm for a product ", shape.m,
                          "x", shape.k, "x", shape.n, " of ",
                          to_string(shape.in)));
}

std::optional<cublasLtMatmulAlgo_t> LtProducts::find_algorithm(
    const ProductShape& shape, int64_t count, bool alone) {
  Description description(shape);
  Preference preference(shape, alone);
  Typical batch(shape, count);
  std::array<cublasLtMatmulHeuristicResult_t, 64> results = {};
  int found = 0;
  const cublasLtHandle_t handle = engine_.cublas_lt();
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, description.get(), batch.b.get(), batch.a.get(), batch.c.get(),
      batch.c.get(), preference.get(), static_cast<int>(results.size()),
      results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  const auto end = results.begin() + found;
  const auto best = std::find_if(results.begin(), end, [&](const auto& result) {
    return result.state == CUBLAS_STATUS_SUCCESS &&
           (alone || takes_batches(handle, shape, result));
  });
  if (best == end) return std::nullopt;
  return best->algo;
}

void LtProducts::run(const ProductShape& shape, const Matrices& c,
                     const void* alpha, const ConstMatrices& a,
                     const ConstMatrices& b, const void* beta,
                     const ConstMatrices* addend) {
  const ConstMatrices added = addend == nullptr ? c : *addend;
  // The largest number of blocks in a grid.
  constexpr int64_t kMost = 32768;
  if (c.count > kMost) {
    const int64_t rest = c.count - kMost;
    const ConstMatrices first = added.part(0, kMost);
    const ConstMatrices second = added.part(kMost, rest);
    run(shape, c.part(0, kMost), alpha, a.part(0, kMost), b.part(0, kMost),
        beta, &first);
    run(shape, c.part(kMost, rest), alpha, a.part(kMost, rest),
        b.part(kMost, rest), beta, &second);
    return;
  }
  const auto found = choices_.find(shape);
  CANZONA_CHECK(found != choices_.end(), "a product not prepared");
  const Choice& choice = found->second;
  if (!choice.alone)
    return run_at_once(shape, choice, c, alpha, a, b, beta, added);
  for (int64_t i = 0; i < c.count; ++i)
    run_at_once(shape, choice, c.at(i), alpha, a.at(i), b.at(i), beta,
                added.at(i));
}

void LtProducts::run_at_once(const ProductShape& shape, const Choice& choice,
                             const Matrices& c, const void* alpha,
                             const ConstMatrices& a, const ConstMatrices& b,
                             const void* beta, const ConstMatrices& addend) {
  Description description(shape);
  Layout left(a);
  Layout right(b);
  Layout to(c);
  Layout added(addend);
  check_cublas(
      cublasLtMatmul(
          engine_.cublas_lt(), description.get(), alpha, b.data, right.get(),
          a.data, left.get(), beta, addend.data, added.get(), c.data, to.get(),
          &choice.algorithm, choice.alone ? engine_.workspace() : nullptr,
          choice.alone ? CudaEngine::kWorkspaceBytes : 0, engine_.stream()),
      "cublasLtMatmul");
}

}  // namespace canzona::linalg

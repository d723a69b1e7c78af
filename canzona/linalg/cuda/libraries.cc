#include "canzona/linalg/cuda/libraries.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

void check_cublas(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw InternalError(cat(what, ": ", cublasGetStatusString(status), " (",
                          cublasGetStatusName(status), ")"));
}

void check_cusolver(cusolverStatus_t status, std::string_view what) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw InternalError(
      cat(what, ": cuSOLVER's status ", static_cast<int>(status)));
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

}  // namespace canzona

// Handles of NVIDIA's libraries, made on first use, and the meaning of their
// status codes. Belongs to one engine.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>

#include <string>
#include <string_view>

namespace canzona {

// Throws InternalError with the call and the library's text.
void check_cublas(cublasStatus_t status, std::string_view what);
void check_cusolver(cusolverStatus_t status, std::string_view what);

// "cuBLAS 13.0.2"
std::string cublas_version();

class Libraries {
 public:
  Libraries() = default;
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  cublasHandle_t cublas();
  cublasLtHandle_t cublas_lt();
  cusolverDnHandle_t cusolver();
  cusolverDnParams_t cusolver_params();

 private:
  cublasHandle_t cublas_ = nullptr;
  cublasLtHandle_t cublas_lt_ = nullptr;
  cusolverDnHandle_t cusolver_ = nullptr;
  cusolverDnParams_t cusolver_params_ = nullptr;
};

}  // namespace canzona

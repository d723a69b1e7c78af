// Handles of NVIDIA's libraries, made on first use, and the meaning of their
// status codes. Belongs to one engine.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

// Throws InternalError with the call and the library's text.
void check_cublas(cublasStatus_t status, std::string_view what);
void check_cusolver(cusolverStatus_t status, std::string_view what);

// Returns the version in the form "cuBLAS 13.0.2".
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

// Products by cuBLASLt whose bits depend on the shape alone.
//
//   products.prepare(shape);                      // not during a capture
//   products.run(shape, c, alpha, a, b, beta);
//
// The algorithm is chosen once per shape, for a fixed number of matrices, and
// used for every batch. It neither splits the inner dimension nor needs memory,
// so each element is one sum in a fixed order. If there is no such algorithm,
// matrices are multiplied one by one with the best one for a single matrix.
// Libraries also depend on alignment; here that is part of the shape (`wide`:
// rows are 16-byte aligned), and the caller copies matrices whose alignment
// does not match their shape.
//
// Belongs to one engine.
class CudaEngine;

// The shape of C (m x n, of type `out`) and of A and B (of type `in`), as they
// are stored, row-major.
struct ProductShape {
  DType in = DType::kFp32;
  DType out = DType::kFp32;
  int64_t m = 0, n = 0, k = 0;
  Op op_a = Op::kNone, op_b = Op::kNone;
  bool wide_a = false, wide_b = false, wide_c = false;
  // How many are usually multiplied together: algorithms are chosen for that.
  int64_t usual_count = 1;
  // True for products that are never batched: the library's first answer is
  // taken, which may use the engine's workspace.
  bool is_alone = false;

  auto operator<=>(const ProductShape&) const = default;
};

class LtProducts {
 public:
  explicit LtProducts(CudaEngine& engine) : engine_(engine) {}

  void prepare(const ProductShape& shape);
  // C = alpha·op(A)·op(B) + beta·addend, with scalars on the device: fp64 for
  // fp64, else fp32. The addend, C itself by default, is stored as C is.
  void run(const ProductShape& shape, const Matrices& c, const void* alpha,
           const ConstMatrices& a, const ConstMatrices& b, const void* beta,
           const ConstMatrices* addend = nullptr);

 private:
  // `alone` means one matrix at a time, with the engine's workspace.
  struct Choice {
    cublasLtMatmulAlgo_t algorithm;
    bool alone = false;
  };

  Choice choose(const ProductShape& shape);
  // Returns the best suitable algorithm for this many matrices at once.
  std::optional<cublasLtMatmulAlgo_t> find_algorithm(const ProductShape& shape,
                                                     int64_t count, bool alone);
  void run_at_once(const ProductShape& shape, const Choice& choice,
                   const Matrices& c, const void* alpha, const ConstMatrices& a,
                   const ConstMatrices& b, const void* beta,
                   const ConstMatrices& addend);

  CudaEngine& engine_;
  std::map<ProductShape, Choice> choices_;
};

}  // namespace canzona::linalg

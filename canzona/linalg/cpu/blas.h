// OpenBLAS and LAPACK: what is linked, how fast it is, and declarations of the
// functions that this room calls.
//
//   begin_blas();                     // before the first product
//   BlasInfo info = blas_info();      // {"OpenBLAS 0.3.21", …, "SkylakeX", …}
//
// OpenBLAS chooses its kernels when it is loaded, from a list of the CPUs known
// at its release, and silently falls back to those of 2004 for anything newer,
// at a fifth of the speed. blas_environment.cc names the right ones before
// that. Every call runs on the calling thread alone, so that bits depend on
// nothing else; any thread may call.
#pragma once

#include <cstddef>
#include <string>

#include "canzona/base/rooms.h"

namespace canzona::linalg {

// Called once per process, cheap after that: sets one thread per call, and
// prints a line to stderr if the kernels do not fit the CPU. Throws
// InternalError if the library uses 64-bit integers.
void begin_blas();

struct BlasInfo {
  std::string library;         // "OpenBLAS 0.3.21"
  std::string config;          // as the library describes itself
  std::string core;            // whose kernels it runs: "SkylakeX"
  bool fallback_core = false;  // older than AVX2, on a CPU that has it
  bool shared = false;         // linked from a shared library
};
BlasInfo blas_info();

// Returns 10⁹ operations per second of one thread in a product of 1024³.
double measure_sgemm_gflops();

}  // namespace canzona::linalg

// These take 32-bit integers; cblas passes its enumerations as int.
extern "C" {

char* openblas_get_config(void);
char* openblas_get_corename(void);
void openblas_set_num_threads(int num_threads);

void cblas_sgemm(int order, int op_a, int op_b, int m, int n, int k,
                 float alpha, const float* a, int lda, const float* b, int ldb,
                 float beta, float* c, int ldc);
void cblas_dgemm(int order, int op_a, int op_b, int m, int n, int k,
                 double alpha, const double* a, int lda, const double* b,
                 int ldb, double beta, double* c, int ldc);
void cblas_ssyrk(int order, int half, int op, int n, int k, float alpha,
                 const float* a, int lda, float beta, float* c, int ldc);
void cblas_dsyrk(int order, int half, int op, int n, int k, double alpha,
                 const double* a, int lda, double beta, double* c, int ldc);
void cblas_strsm(int order, int side, int half, int op, int diagonal, int m,
                 int n, float alpha, const float* a, int lda, float* b,
                 int ldb);
void cblas_dtrsm(int order, int side, int half, int op, int diagonal, int m,
                 int n, double alpha, const double* a, int lda, double* b,
                 int ldb);

// Fortran passes everything by address, and the length of each text at the end.
void ssyevd_(const char* job, const char* half, const int* n, float* a,
             const int* lda, float* values, float* work, const int* lwork,
             int* iwork, const int* liwork, int* info, size_t, size_t);
void dsyevd_(const char* job, const char* half, const int* n, double* a,
             const int* lda, double* values, double* work, const int* lwork,
             int* iwork, const int* liwork, int* info, size_t, size_t);
void sgeqrf_(const int* m, const int* n, float* a, const int* lda, float* tau,
             float* work, const int* lwork, int* info);
void dgeqrf_(const int* m, const int* n, double* a, const int* lda, double* tau,
             double* work, const int* lwork, int* info);
void sorgqr_(const int* m, const int* n, const int* k, float* a, const int* lda,
             const float* tau, float* work, const int* lwork, int* info);
void dorgqr_(const int* m, const int* n, const int* k, double* a,
             const int* lda, const double* tau, double* work, const int* lwork,
             int* info);
void spotrf_(const char* half, const int* n, float* a, const int* lda,
             int* info, size_t);
void dpotrf_(const char* half, const int* n, double* a, const int* lda,
             int* info, size_t);

}  // extern "C"

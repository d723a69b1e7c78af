// Products of symmetric matrices that commute, in fp32 on CPUs with AVX-512:
// one triangle of them. Made of OpenBLAS's sgemm a triangle comes to 0.71 of
// its rate, by ssyrk to 0.86, and by this kernel to 0.89. The Gram form of
// Newton–Schulz has fourteen of them.
#pragma once

#include <cstdint>

namespace canzona::linalg {

// A square matrix. Arguments are plain, so that no inline function is compiled
// for a CPU that others do not have.
struct SquareRows {
  const float* data = nullptr;
  int64_t stride = 0;  // from row to row
};

// The lower triangle of C = alpha·A·B + beta·C; with beta 0 the old C is
// ignored. What is above the diagonal stays. `scratch` has kLowerScratch
// numbers, aligned to 64 bytes. Only on x86_64, and only if
// cpu_features().avx512.
constexpr int64_t kLowerScratch = 256 * (1024 + 16);
void product_lower_avx512(float* c, int64_t c_stride, int64_t side, float alpha,
                          SquareRows a, SquareRows b, float beta,
                          float* scratch);

}  // namespace canzona::linalg

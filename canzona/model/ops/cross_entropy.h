// Loops of the cross entropy (table.h).
#pragma once

#include <cstdint>

#include "canzona/model/ops/lanes.h"
#include "canzona/model/ops/soften.h"

namespace canzona {
namespace {

template <class Real>
void row_largest_kernel(Real* largests, const Real* logits, int64_t rows,
                        int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
    largests[row] = row_maximum(logits + row * cols, cols);
}

template <class Real>
void row_exponents_kernel(Real* logits, Real* sums, const Real* largests,
                          int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
    sums[row] =
        row_exponentials(logits + row * cols, cols, Real{1}, largests[row]);
}

template <class Real>
void row_shares_kernel(Real* logits, const Real* sums, Real factor,
                       int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
    scale_all(logits + row * cols, factor / sums[row], cols);
}

}  // namespace
}  // namespace canzona

// Fills the operands of Newton–Schulz on a GPU: momentum, Nesterov's blend,
// norm and cast, without a pass of their own for any of them.
//
//   launch_scales(source, normalization, work, stream);  // changes no state
//   launch_load(source, work.scales, target, stream);
//
// The norm is taken first, of the blend that the second pass computes again: it
// is needed before the numbers are rounded to 16 bits. Sums are of chunks that
// only the shape decides, in fp64, added in order. All pointers are of the
// device. Asynchronous; any thread may call, for its current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "canzona/linalg/dtype.h"

namespace canzona {

// `count` contiguous matrices of `elements` each, wherever they lie. Without
// momenta the gradients are taken as they are.
template <class Real>
struct BlendSource {
  const Real* const* grads = nullptr;
  Real* const* momenta = nullptr;
  const double* blend = nullptr;  // keep, add, from_grad, from_momentum
  int64_t elements = 0;
  int64_t count = 0;
};

struct ScaleRule {
  double factor = 1;
  double epsilon = 0;
  bool add_epsilon = false;
};

// Scratch: `slots` numbers per matrix, and what comes out, one per matrix.
int64_t scale_slots(int64_t elements);
struct ScaleWork {
  double* slots = nullptr;
  double* peaks = nullptr;   // powers of two; one per matrix
  double* scales = nullptr;  // one over the enlarged norm; 0 for zeros
};

template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream);

// Rows of `cols` elements, `row_stride` apart.
struct LoadTarget {
  std::byte* data = nullptr;
  DType dtype = DType::kFp16;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;
};

// target = blend·scale, rounded once; the momenta advance.
template <class Real>
void launch_load(const BlendSource<Real>& source, const double* scales,
                 const LoadTarget& target, cudaStream_t stream);

}  // namespace canzona

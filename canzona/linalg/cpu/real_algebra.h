// Newton–Schulz in fp32 or fp64 by BLAS on plain rows.
//
//   std::unique_ptr<CpuAlgebra> algebra = make_real_algebra<float>();
//
// Identities are added to the diagonal of the storage. A matrix that had to be
// transposed stays as it came, and products take it from the other side.
#pragma once

#include <memory>

#include "canzona/linalg/cpu/cpu_algebra.h"

namespace canzona {

template <class Real>  // float or double
std::unique_ptr<CpuAlgebra> make_real_algebra();

}  // namespace canzona

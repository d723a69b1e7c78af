// Newton–Schulz on a GPU.
#pragma once

#include <memory>

#include "canzona/linalg/operand.h"

namespace canzona {

class CudaEngine;

// Belongs to the engine and issues its work there.
std::unique_ptr<Algebra> make_cuda_algebra(CudaEngine& engine, DType dtype);

}  // namespace canzona

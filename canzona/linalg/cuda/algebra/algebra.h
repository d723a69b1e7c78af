// Newton–Schulz on a GPU.
//
//   std::unique_ptr<Algebra> fp16 = make_cuda_algebra(engine, DType::kFp16);
//
// In 16 bits by tensor cores (tile_product.h), in fp32 and fp64 by the engine's
// own products. A matrix that came transposed stays as it came, and products
// take it from the other side; identities lie on the diagonal. The engine
// outlives the algebra; one thread at a time.
#pragma once

#include <memory>

#include "canzona/linalg/operand.h"

namespace canzona {

class CudaEngine;

std::unique_ptr<Algebra> make_cuda_algebra(CudaEngine& engine, DType dtype);

// One for 16 bits, one for fp32 and fp64.
std::unique_ptr<Algebra> make_tile_algebra(CudaEngine& engine, DType dtype);
std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype);

}  // namespace canzona

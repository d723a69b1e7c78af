// The memory of the GPU, by plain cudaMalloc. Any thread may call.
#pragma once

#include "canzona/linalg/memory.h"

namespace canzona {

Memory& cuda_memory();

}  // namespace canzona

// Numbers in the memory of the device that steer work, or tell of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "canzona/linalg/engine.h"

namespace canzona {

// Conditions in graphs: work that is done if a number is 0.

// Adds a condition to what `stream` captures, and gives the graph that is run
// if `*flag` is 0; it belongs to the graph being captured.
cudaGraph_t add_condition(cudaStream_t stream, const int32_t* flag);

// A number that work on a GPU leaves where this process sees it, without
// either waiting for the other.

// For engines of the GPU alone.
std::unique_ptr<Notice> make_cuda_notice();

}  // namespace canzona

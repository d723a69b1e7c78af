// Numbers in device memory that control work, or report on it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

// Conditions in graphs: work that is done only if a number is 0.

// Adds a condition to what `stream` captures, and returns the graph that runs
// if `*flag` is 0; it belongs to the graph being captured.
cudaGraph_t add_condition(cudaStream_t stream, const int32_t* flag);

// A number that GPU work leaves where this process sees it, without either
// waiting for the other.

// The engines that post it must be of the GPU.
std::unique_ptr<Notice> make_cuda_notice();

}  // namespace canzona::linalg

// Conditions in graphs: work that is done if a number is 0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace canzona {

// Adds a condition to what `stream` captures, and gives the graph that is run
// if `*flag` is 0; it belongs to the graph being captured.
cudaGraph_t add_condition(cudaStream_t stream, const int32_t* flag);

}  // namespace canzona

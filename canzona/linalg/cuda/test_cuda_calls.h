// For tests: counts the calls in our own code that make CUDA wait, allocate or
// copy results to the host. The linker redirects them to the counters of
// test_cuda_calls.cc (-Wl,--wrap, canzona_count_cuda_calls in CMakeLists.txt);
// calls inside NVIDIA's libraries are not seen.
//
//   forget_cuda_calls();
//   …
//   EXPECT_EQ(cuda_calls(), "");
//
// Calls of all threads are counted.
#pragma once

#include <string>

namespace canzona::linalg {

void forget_cuda_calls();
// Returns the counts as "cudaStreamSynchronize x 2; cudaMalloc x 1; ", in the
// order of a fixed list; empty if there was no call.
std::string cuda_calls();

}  // namespace canzona::linalg

// For tests: which calls of our own code ask CUDA to wait, to allocate or to
// bring results here. The linker leads them to the counters of
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

namespace canzona {

void forget_cuda_calls();
// "cudaStreamSynchronize x 2; cudaMalloc x 1; ", in the order of a fixed list;
// empty: none.
std::string cuda_calls();

}  // namespace canzona

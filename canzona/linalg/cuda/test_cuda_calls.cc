#include "canzona/linalg/cuda/test_cuda_calls.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

#include "canzona/base/text.h"

namespace canzona::linalg::cuda_call_counts {

enum CudaCall {
  kStreamSynchronize,
  kDeviceSynchronize,
  kEventSynchronize,
  kMemcpy,
  kReadByHost,  // cudaMemcpyAsync from the device
  kMalloc,
  kFree,
  kMallocHost,
  kFreeHost,
  kGraphInstantiate,
  kBeginCapture,
  kNumCalls
};

constexpr std::array<const char*, kNumCalls> kNames = {
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaMemcpyAsync to the host",
    "cudaMalloc",
    "cudaFree",
    "cudaMallocHost",
    "cudaFreeHost",
    "cudaGraphInstantiate",
    "cudaStreamBeginCapture"};

std::array<std::atomic<int>, kNumCalls> counts;

}  // namespace canzona::linalg::cuda_call_counts

using canzona::linalg::cuda_call_counts::counts;

extern "C" {

#define CANZONA_COUNTED(index, name, parameters, arguments) \
  cudaError_t __real_##name parameters;                     \
  cudaError_t __wrap_##name parameters {                    \
    ++counts[canzona::linalg::cuda_call_counts::index];     \
    return __real_##name arguments;                         \
  }

CANZONA_COUNTED(kStreamSynchronize, cudaStreamSynchronize, (cudaStream_t s),
                (s))
CANZONA_COUNTED(kDeviceSynchronize, cudaDeviceSynchronize, (), ())
CANZONA_COUNTED(kEventSynchronize, cudaEventSynchronize, (cudaEvent_t e), (e))
CANZONA_COUNTED(kMemcpy, cudaMemcpy,
                (void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
                (to, from, bytes, kind))
CANZONA_COUNTED(kMalloc, cudaMalloc, (void** memory, size_t bytes),
                (memory, bytes))
CANZONA_COUNTED(kFree, cudaFree, (void* memory), (memory))
CANZONA_COUNTED(kMallocHost, cudaMallocHost, (void** memory, size_t bytes),
                (memory, bytes))
CANZONA_COUNTED(kFreeHost, cudaFreeHost, (void* memory), (memory))
CANZONA_COUNTED(kGraphInstantiate, cudaGraphInstantiate,
                (cudaGraphExec_t * exec, cudaGraph_t graph,
                 unsigned long long flags),
                (exec, graph, flags))
CANZONA_COUNTED(kBeginCapture, cudaStreamBeginCapture,
                (cudaStream_t stream, cudaStreamCaptureMode mode),
                (stream, mode))
#undef CANZONA_COUNTED

cudaError_t __real_cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToHost)
    ++counts[canzona::linalg::cuda_call_counts::kReadByHost];
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}

}  // extern "C"

namespace canzona::linalg {

void forget_cuda_calls() {
  for (auto& count : counts) count = 0;
}

std::string cuda_calls() {
  std::string text;
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0)
      text += cat(cuda_call_counts::kNames[i], " x ", counts[i].load(), "; ");
  return text;
}

}  // namespace canzona::linalg

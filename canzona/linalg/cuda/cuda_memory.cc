#include "canzona/linalg/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <new>

#include "canzona/linalg/cuda/check.h"

namespace canzona {
namespace {

class CudaMemory final : public Memory {
 public:
  std::byte* allocate(int64_t bytes) override {
    void* memory = nullptr;
    const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    const cudaError_t status = cudaMalloc(&memory, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the next call would report it once more
      throw std::bad_alloc();
    }
    check_cuda(status, "cudaMalloc");
    return static_cast<std::byte*>(memory);
  }

  // Waits for work that may still use it. At the end of a process the driver
  // may be gone already, and the memory with it.
  void release(std::byte* memory) override { cudaFree(memory); }
};

}  // namespace

Memory& cuda_memory() {
  static CudaMemory memory;
  return memory;
}

}  // namespace canzona

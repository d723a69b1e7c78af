#include "canzona/linalg/cuda/cuda_words.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <new>
#include <string>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/device.h"

namespace canzona::linalg {
namespace {

// Each word has its own cache line.
constexpr int kWordBytes = 64;
constexpr int kWordsOfPage = 64;

__global__ void write_word_kernel(volatile uint32_t* word, uint32_t value) {
  __threadfence_system();
  *word = value;
}

__global__ void wait_word_kernel(const volatile uint32_t* word,
                                 uint32_t value) {
  while (static_cast<int32_t>(*word - value) < 0) __nanosleep(500);
  __threadfence_system();
}

__device__ uint64_t global_nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void idle_kernel(uint64_t nanoseconds) {
  const uint64_t begin = global_nanoseconds();
  while (global_nanoseconds() - begin < nanoseconds) __nanosleep(500);
}

// The driver has had these functions under these names since CUDA 11.7.
struct WordCalls {
  PFN_cuStreamWaitValue32_v11070 wait = nullptr;
  PFN_cuStreamWriteValue32_v11070 write = nullptr;
  bool exist() const { return wait != nullptr && write != nullptr; }
};

WordCalls find_word_calls() {
  constexpr unsigned kVersion = 11070;
  return {reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(
              driver_function("cuStreamWaitValue32", kVersion)),
          reinterpret_cast<PFN_cuStreamWriteValue32_v11070>(
              driver_function("cuStreamWriteValue32", kVersion))};
}

const WordCalls& word_calls() {
  static const WordCalls calls = find_word_calls();
  return calls;
}

// Returns false if the driver does not support it and a kernel must be used.
bool accept_word_call(CUresult result, const char* name) {
  if (result == CUDA_SUCCESS) return true;
  if (result == CUDA_ERROR_NOT_SUPPORTED) return false;
  throw InternalError(std::string(name) + " failed with error " +
                      std::to_string(static_cast<int>(result)));
}

// A word has the same address on host and device.
CUdeviceptr address_of(const std::atomic<uint32_t>& word) {
  return reinterpret_cast<CUdeviceptr>(&word);
}

// Loading a kernel at its first launch may wait for kernels in flight, so they
// are loaded now.
void load_word_kernels() {
  cudaFuncAttributes attributes;
  for (const void* kernel : {reinterpret_cast<const void*>(write_word_kernel),
                             reinterpret_cast<const void*>(wait_word_kernel)})
    check_cuda(cudaFuncGetAttributes(&attributes, kernel),
               "cudaFuncGetAttributes");
}

}  // namespace

CudaWords::~CudaWords() {
  for (void* page : pages_) cudaFreeHost(page);
}

std::atomic<uint32_t>& CudaWords::make() {
  if (pages_.empty()) load_word_kernels();
  if (pages_.empty() || used_ == kWordsOfPage) {
    void* page = nullptr;
    check_cuda(cudaHostAlloc(&page, kWordBytes * kWordsOfPage,
                             cudaHostAllocMapped | cudaHostAllocPortable),
               "cudaHostAlloc");
    pages_.push_back(page);
    used_ = 0;
  }
  auto* place = static_cast<std::byte*>(pages_.back()) + kWordBytes * used_++;
  return *new (place) std::atomic<uint32_t>(0);
}

void CudaWords::write(cudaStream_t stream, std::atomic<uint32_t>& word,
                      uint32_t value) {
  if (word_calls().exist() &&
      accept_word_call(word_calls().write(stream, address_of(word), value,
                                          CU_STREAM_WRITE_VALUE_DEFAULT),
                       "cuStreamWriteValue32"))
    return;
  write_word_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<uint32_t*>(&word),
                                         value);
  check_cuda(cudaGetLastError(), "write_word_kernel");
}

void CudaWords::wait(cudaStream_t stream, const std::atomic<uint32_t>& word,
                     uint32_t value) {
  if (word_calls().exist() &&
      accept_word_call(word_calls().wait(stream, address_of(word), value,
                                         CU_STREAM_WAIT_VALUE_GEQ),
                       "cuStreamWaitValue32"))
    return;
  wait_word_kernel<<<1, 1, 0, stream>>>(
      reinterpret_cast<const uint32_t*>(&word), value);
  check_cuda(cudaGetLastError(), "wait_word_kernel");
}

void launch_idle(cudaStream_t stream, double seconds) {
  if (seconds <= 0) return;
  idle_kernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(seconds * 1e9));
  check_cuda(cudaGetLastError(), "idle_kernel");
}

}  // namespace canzona::linalg

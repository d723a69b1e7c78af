// Measures the peak rates of this GPU.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda_device.h"

namespace canzona {
namespace {

struct Release {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
using Buffer = std::unique_ptr<std::byte, Release>;

Buffer allocate(size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "memory to measure rates in");
  return Buffer(static_cast<std::byte*>(memory));
}

// Random bits of a 16-bit or 32-bit format, with magnitudes between 1/2 and 2:
// zeros would be multiplied faster than real data.
Buffer random_numbers(int64_t count, int bits, uint32_t exponent_mask,
                      uint32_t exponent_one) {
  std::vector<std::byte> host(static_cast<size_t>(count * bits / 8));
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word = static_cast<uint32_t>(bits_at(3, static_cast<uint64_t>(i)));
    word = (word & ~exponent_mask) | exponent_one;
    std::copy_n(reinterpret_cast<const std::byte*>(&word), bits / 8,
                host.begin() + i * bits / 8);
  }
  Buffer device = allocate(host.size());
  check_cuda(cudaMemcpy(device.get(), host.data(), host.size(),
                        cudaMemcpyHostToDevice),
             "random numbers to the GPU");
  return device;
}

// Returns the minimum of several runs, by events, after a warm-up.
double least_seconds(const std::function<void()>& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < 8; ++round) {
    check_cuda(cudaEventRecord(begin, nullptr), "cudaEventRecord");
    work();
    check_cuda(cudaEventRecord(end, nullptr), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end), "measuring rates");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (round > 1) least = std::min(least, static_cast<double>(ms) * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return least;
}

class Cubes {
 public:
  Cubes() {
    if (cublasCreate(&handle_) != CUBLAS_STATUS_SUCCESS)
      throw InternalError("cublasCreate failed");
  }
  ~Cubes() { cublasDestroy(handle_); }
  Cubes(const Cubes&) = delete;
  Cubes& operator=(const Cubes&) = delete;

  double tflops(int n, cudaDataType_t type, const Buffer& a, const Buffer& b,
                const Buffer& c) {
    const float alpha = 1, beta = 0;
    const double seconds = least_seconds([&] {
      const auto status =
          cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &alpha,
                       a.get(), type, n, b.get(), type, n, &beta, c.get(), type,
                       n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      if (status != CUBLAS_STATUS_SUCCESS)
        throw InternalError(
            cat("cublasGemmEx failed: status ", static_cast<int>(status)));
    });
    return 2.0 * n * n * n / seconds * 1e-12;
  }

 private:
  cublasHandle_t handle_ = nullptr;
};

double copy_rate() {
  constexpr size_t kBytes = size_t{4} << 30;
  const Buffer from = allocate(kBytes), to = allocate(kBytes);
  check_cuda(cudaMemset(from.get(), 1, kBytes), "cudaMemset");
  return 2.0 * kBytes / least_seconds([&] {
           check_cuda(cudaMemcpyAsync(to.get(), from.get(), kBytes,
                                      cudaMemcpyDeviceToDevice, nullptr),
                      "a copy inside the GPU");
         });
}

}  // namespace

CudaRates measure_cuda_rates() {
  std::string why_not;
  if (!find_cuda_device(&why_not)) throw UsageError(why_not);
  constexpr int kHalf = 8192, kSingle = 4096;
  CudaRates rates;
  Cubes cubes;
  {
    const Buffer c = allocate(size_t{2} * kHalf * kHalf);
    const Buffer fp16 =
        random_numbers(int64_t{kHalf} * kHalf, 16, 0x7c00, 0x3800);
    rates.fp16_tflops = cubes.tflops(kHalf, CUDA_R_16F, fp16, fp16, c);
    const Buffer bf16 =
        random_numbers(int64_t{kHalf} * kHalf, 16, 0x7f80, 0x3f00);
    rates.bf16_tflops = cubes.tflops(kHalf, CUDA_R_16BF, bf16, bf16, c);
  }
  const Buffer c = allocate(size_t{4} * kSingle * kSingle);
  const Buffer fp32 =
      random_numbers(int64_t{kSingle} * kSingle, 32, 0x7f800000, 0x3f000000);
  rates.fp32_tflops = cubes.tflops(kSingle, CUDA_R_32F, fp32, fp32, c);
  rates.copy_bytes_per_second = copy_rate();
  return rates;
}

}  // namespace canzona

#include "canzona/linalg/cuda/device.h"

#include <cublas_v2.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"

namespace canzona::linalg {
namespace {

std::string call_failed(cudaError_t status, std::string_view what) {
  return cat(what, ": ", cudaGetErrorString(status), " (",
             cudaGetErrorName(status), ")");
}

// CUDA reports a missing driver as an insufficient one.
bool driver_is_missing(cudaError_t status) {
  if (status != cudaErrorInsufficientDriver) return false;
  int version = 0;
  return cudaDriverGetVersion(&version) != cudaSuccess || version == 0;
}

}  // namespace

bool means_no_gpu(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
      return true;
    default:
      return false;
  }
}

std::string no_gpu_message(cudaError_t status, std::string_view what) {
  const char* why = "";
  if (driver_is_missing(status))
    why = "no NVIDIA driver is loaded; ";
  else if (status == cudaErrorInsufficientDriver)
    why = "the driver is older than CUDA 13, install 580 or newer; ";
  return cat("there is no GPU: ", why, call_failed(status, what));
}

void throw_cuda_error(cudaError_t status, std::string_view what) {
  cudaGetLastError();  // or the next launch would report it
  if (means_no_gpu(status)) throw UsageError(no_gpu_message(status, what));
  if (status == cudaErrorMemoryAllocation)
    throw UsageError(cat("the GPU's memory is full: ", what));
  throw InternalError(call_failed(status, what));
}

namespace {

// Without a driver this is the first call to fail, and it has no side effects.
cudaError_t look_for_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count == 0) return cudaErrorNoDevice;
  // The runtime remembers a failure and would report it again.
  cudaGetLastError();
  return status;
}

constexpr const char* kLook = "cudaGetDeviceCount";

std::string version_text(int version) {
  return cat(version / 1000, ".", version % 1000 / 10);
}

// The version that the kernel module reports; containers may hide it.
std::string driver_text() {
  int version = 0;
  check_cuda(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  const std::string cuda = cat("CUDA ", version_text(version));
  std::ifstream file("/sys/module/nvidia/version");
  std::string module;
  return file >> module ? cat(module, ", ", cuda) : cuda;
}

std::string runtime_text() {
  int version = 0;
  check_cuda(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return version_text(version);
}

}  // namespace

bool cuda_is_built() { return true; }

DeviceInfo cuda_device_info() {
  check_cuda(look_for_devices(), kLook);
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp gpu{};
  check_cuda(cudaGetDeviceProperties(&gpu, device), "cudaGetDeviceProperties");
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {.name = gpu.name,
          .major = gpu.major,
          .minor = gpu.minor,
          .num_multiprocessors = gpu.multiProcessorCount,
          .memory_bytes = static_cast<int64_t>(gpu.totalGlobalMem),
          .free_bytes = static_cast<int64_t>(free),
          .l2_bytes = gpu.l2CacheSize,
          .shared_memory_per_block =
              static_cast<int64_t>(gpu.sharedMemPerBlockOptin),
          .driver = driver_text(),
          .runtime = runtime_text()};
}

std::optional<CudaDeviceInfo> find_cuda_device(std::string* why_not) {
  try {
    return cuda_device_info();
  } catch (const UsageError& error) {
    if (why_not != nullptr) *why_not = error.what();
    return std::nullopt;
  }
}

void* driver_function(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &entry, version,
                                              cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  return found == cudaDriverEntryPointSuccess ? entry : nullptr;
}

CurrentCudaDevice::CurrentCudaDevice(int number) {
  if (cudaGetDevice(&before_) != cudaSuccess) {
    cudaGetLastError();  // or the next launch would report it
    before_ = -1;
    return;
  }
  if (number >= 0 && number != before_)
    check_cuda(cudaSetDevice(number), "cudaSetDevice");
}

CurrentCudaDevice::~CurrentCudaDevice() {
  int now = -1;
  if (before_ < 0 || cudaGetDevice(&now) != cudaSuccess || now == before_)
    return;
  cudaSetDevice(before_);
}

namespace {

void enable_access(int device, int peer) {
  int can = 0;
  check_cuda(cudaDeviceCanAccessPeer(&can, device, peer),
             "cudaDeviceCanAccessPeer");
  if (can == 0) return;
  const CurrentCudaDevice at(device);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // or the next launch would report it
    return;
  }
  check_cuda(status, "cudaDeviceEnablePeerAccess");
}

}  // namespace

void connect_peers(int device) {
  static std::mutex mutex;
  static auto& connected = *new std::vector<int>;
  const std::lock_guard lock(mutex);
  if (std::ranges::find(connected, device) != connected.end()) return;
  for (const int peer : connected) {
    enable_access(device, peer);
    enable_access(peer, device);
  }
  connected.push_back(device);
}

int64_t cuda_free_bytes() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess)
    return static_cast<int64_t>(free);
  cudaGetLastError();  // or the next launch would report it
  return 0;
}

namespace {

class CudaMemory final : public Memory {
 public:
  std::byte* allocate(int64_t bytes) override {
    void* memory = nullptr;
    const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    const cudaError_t status = cudaMalloc(&memory, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // or the next call would report it again
      throw std::bad_alloc();
    }
    check_cuda(status, "cudaMalloc");
    return static_cast<std::byte*>(memory);
  }

  // Waits for work that may still use it. When a process exits the driver may
  // already be gone, and the memory with it.
  void release(std::byte* memory) override { cudaFree(memory); }
};

}  // namespace

Memory& cuda_memory() {
  static CudaMemory memory;
  return memory;
}

// Measures the peak rates of this GPU.

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

// Returns the shortest of several runs after a warm-up, timed by events.
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

}  // namespace canzona::linalg

#include "canzona/linalg/cuda/device.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <new>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
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
  const char* missing =
      driver_is_missing(status) ? "no NVIDIA driver is loaded; " : "";
  return cat("there is no GPU: ", missing, call_failed(status, what));
}

void throw_cuda_error(cudaError_t status, std::string_view what) {
  cudaGetLastError();  // or the next launch would report it
  if (means_no_gpu(status)) throw UsageError(no_gpu_message(status, what));
  if (status == cudaErrorMemoryAllocation)
    throw UsageError(cat("the GPU's memory is full: ", what));
  throw InternalError(call_failed(status, what));
}

namespace {

// Without a driver this is the first call that fails, without side effects.
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

bool cuda_device_present() { return look_for_devices() == cudaSuccess; }

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

int64_t cuda_free_bytes() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess)
    return static_cast<int64_t>(free);
  cudaGetLastError();  // or the next launch would report it
  return 0;
}

std::vector<CudaPeers> cuda_peers() {
  std::vector<CudaPeers> gpus;
  int count = 0;
  if (look_for_devices() != cudaSuccess) return gpus;
  check_cuda(cudaGetDeviceCount(&count), kLook);
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, gpu),
               "cudaGetDeviceProperties");
    std::array<char, 32> bus{};
    check_cuda(cudaDeviceGetPCIBusId(bus.data(), bus.size(), gpu),
               "cudaDeviceGetPCIBusId");
    CudaPeers found{.name = properties.name, .bus = bus.data(), .peers = {}};
    for (int other = 0; other < count; ++other) {
      int can = 0;
      if (other != gpu)
        check_cuda(cudaDeviceCanAccessPeer(&can, gpu, other),
                   "cudaDeviceCanAccessPeer");
      if (can != 0) found.peers.push_back(other);
    }
    gpus.push_back(std::move(found));
  }
  return gpus;
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

}  // namespace canzona

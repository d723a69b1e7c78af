#include "canzona/linalg/cuda/device.h"

#include <fstream>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/check.h"

namespace canzona {
namespace {

// Without a driver this is the first call that fails, and it changes nothing.
cudaError_t look_for_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count == 0) return cudaErrorNoDevice;
  // The runtime remembers a failure and would report it once more.
  cudaGetLastError();
  return status;
}

constexpr const char* kLook = "cudaGetDeviceCount";

std::string version_text(int version) {
  return cat(version / 1000, ".", version % 1000 / 10);
}

// What the kernel module calls itself; containers may hide it.
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
  return {.name = gpu.name,
          .major = gpu.major,
          .minor = gpu.minor,
          .num_multiprocessors = gpu.multiProcessorCount,
          .memory_bytes = static_cast<int64_t>(gpu.totalGlobalMem),
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

}  // namespace canzona

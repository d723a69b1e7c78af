#include "canzona/linalg/cuda/check.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

std::string call_failed(cudaError_t status, std::string_view what) {
  return cat(what, ": ", cudaGetErrorString(status), " (",
             cudaGetErrorName(status), ")");
}

// CUDA calls a driver that is not there an insufficient one.
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
  cudaGetLastError();  // or the next launch is blamed for it
  if (means_no_gpu(status)) throw UsageError(no_gpu_message(status, what));
  if (status == cudaErrorMemoryAllocation)
    throw UsageError(cat("the GPU's memory is full: ", what));
  throw InternalError(call_failed(status, what));
}

}  // namespace canzona

// Describes the current GPU.
//
//   const DeviceInfo gpu = cuda_device_info();
//   if (gpu.major == 9) ...  // Hopper's own kernels
//
// Any thread may call; the answer is that of the thread's current device.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/memory.h"

namespace canzona::linalg {

using DeviceInfo = CudaDeviceInfo;

// Throws UsageError if there is no GPU.
DeviceInfo cuda_device_info();

// Turns what a call of the CUDA runtime returns into an error.
//
//   check_cuda(cudaMalloc(&data, bytes), "cudaMalloc");
//   check_cuda(cudaGetLastError(), "launch of momentum_kernel");
//
// Throws UsageError if the machine is the reason (no driver, no GPU, too little
// memory), otherwise InternalError. The message names the call and has CUDA's
// text. Any thread may call it. Note that CUDA reports a kernel's fault at some
// later call, which is then the one named.

[[noreturn]] void throw_cuda_error(cudaError_t status, std::string_view what);

inline void check_cuda(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda_error(status, what);
}

// Returns the driver's function as of this version of CUDA (12040 is 12.4);
// null if the driver is older.
void* driver_function(const char* name, unsigned version);

// Returns how many multiprocessors the calling thread's work may use: all of
// the GPU's, or those of its share (CudaShare).
int usable_multiprocessors(int device);

// True if the status means that this machine has no GPU that we can use.
bool means_no_gpu(cudaError_t status);

// Returns "there is no GPU: ..." for such a status.
std::string no_gpu_message(cudaError_t status, std::string_view what);

// The GPU's memory, allocated by plain cudaMalloc. Any thread may call.
Memory& cuda_memory();

// Lets this GPU and those named in earlier calls read each other's memory,
// where the machine connects them, so that ranks that are threads of one
// process can sum gradients without copying them first. Any thread may call it.
void connect_peers(int device);

}  // namespace canzona::linalg

// Which GPU computes.
//
//   const DeviceInfo gpu = cuda_device_info();
//   if (gpu.major == 9) ...  // Hopper's own kernels
//
// Any thread may ask; the answer is that of the thread's current device.
#pragma once

#include "canzona/linalg/cuda_device.h"

namespace canzona {

using DeviceInfo = CudaDeviceInfo;

bool cuda_device_present();

// UsageError where there is no GPU.
DeviceInfo cuda_device_info();

}  // namespace canzona

// The GPU of this machine, for code that does not include CUDA: `canzona
// doctor`, `--device cuda`.
//
//   std::string why_not;
//   if (const auto gpu = find_cuda_device(&why_not)) use(gpu->name);
//   else explain(why_not);
//
// Any thread may call. cuda/ or no_cuda.cc implements it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/rooms.h"

namespace canzona::linalg {

struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int num_multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;  // currently free
  int64_t l2_bytes = 0;
  int64_t shared_memory_per_block = 0;  // the maximum for a kernel
  std::string driver;                   // "580.159.04, CUDA 13.0"
  std::string runtime;                  // "13.0"
};

// The default stream (cudaStreamLegacy), for make_cuda_engine.
inline void* default_cuda_stream() { return reinterpret_cast<void*>(1); }

// True if this program was built with CUDA.
bool cuda_is_built();

// Returns CUDA's current device; nothing if there is no GPU or no driver. Then
// `why_not`, unless null, says what is missing.
std::optional<CudaDeviceInfo> find_cuda_device(std::string* why_not);

// Returns the free bytes of its memory, whatever uses the rest; 0 if there is
// no GPU.
int64_t cuda_free_bytes();

// Makes a GPU the calling thread's current one while this object lives, and
// restores the previous one afterwards. Number -1 only restores. Does nothing
// if there is no GPU.
class CurrentCudaDevice {
 public:
  explicit CurrentCudaDevice(int number);
  ~CurrentCudaDevice();
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

 private:
  int before_ = -1;
};

// Confines the calling thread to one of `count` equal shares of its GPU's
// multiprocessors while this object lives: engines, lanes and graphs made
// meanwhile belong to the share and must be gone before it ends. Thread ranks
// then have as little of each other as if each had a smaller GPU, except for
// memory and caches, which they share. Throws UsageError if the driver has no
// shares (CUDA 12.4 and newer do), or none as small.
class CudaShare {
 public:
  CudaShare(int number, int count);
  ~CudaShare();
  CudaShare(const CudaShare&) = delete;
  CudaShare& operator=(const CudaShare&) = delete;

 private:
  void* before_ = nullptr;  // the thread's context
};

// The measured peak rates of the GPU: tensor cores on 8192-cubes of random fp16
// and bf16 by cuBLAS, plain fp32 on 4096-cubes, and a copy inside its memory
// (bytes read and written). Throws UsageError if there is none.
struct CudaRates {
  double fp16_tflops = 0;
  double bf16_tflops = 0;
  double fp32_tflops = 0;
  double copy_bytes_per_second = 0;
};
CudaRates measure_cuda_rates();

// The GPUs that this process may use, before CUDA is initialized: a process
// selects one of several by CUDA_VISIBLE_DEVICES, which CUDA reads once.
//
//   const char* name = "CUDA_VISIBLE_DEVICES";
//   const auto gpus = visible_gpus(environment_variable(name), all_gpus());
//   set_environment_variable(name, gpus[local_rank]);
//
// Any thread may call.

// Returns all GPUs of the machine, or of the container, by UUID, as listed by
// the driver's management library; none without a driver.
std::vector<std::string> all_gpus();

// Returns those among them that the variable's value leaves; null means that it
// is not set. A number is an index in `all`; anything else, such as a UUID, is
// kept as it is. As in CUDA, the list ends at an entry that is empty or
// negative.
std::vector<std::string> visible_gpus(const char* variable,
                                      const std::vector<std::string>& all);

}  // namespace canzona::linalg

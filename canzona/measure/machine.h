// Describes what computes here, and how fast it is at best. Printed beside
// every measurement, so that figures can be judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/linalg/cpu/blas.h"

namespace canzona {

struct MachineInfo {
  std::string cpu;  // "Intel(R) Xeon(R) Processor"
  int num_cpus = 1;
  int64_t memory_bytes = 0;
  std::vector<std::string> features;      // "avx512", …
  std::vector<std::string> bf16_kernels;  // best first
  BlasInfo blas;
};
MachineInfo machine_info();
// CPUs that this process may keep busy: those it may run on, bounded by the
// quota of its control group.
int usable_cpus();
// The memory that programs may still take without swapping, bounded by the
// limit of the control group that this process is in; 0 where nobody tells.
int64_t available_memory();

// Rates of one thread, by its CPU time, the best of a few.
struct MachineRates {
  double sgemm_gflops = 0;           // 1024³
  double packed_gflops = 0;          // bf16 tiles that lie in the cache
  double copy_bytes_per_second = 0;  // read and written
};
MachineRates measure_rates();
// Those of the GPU, in the same words: the packed loop is that of its tensor
// cores.
MachineRates measure_gpu_rates();
// The better of each: a machine has slow phases, but no fast ones.
MachineRates best_of(const MachineRates& a, const MachineRates& b);

}  // namespace canzona

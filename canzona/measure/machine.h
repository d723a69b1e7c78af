// Describes the machine and how fast it is at best. It is printed beside every
// measurement so that figures can be judged.
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
// The number of CPUs that this process may keep busy: those it may run on,
// bounded by its cgroup's quota.
int usable_cpus();
// The memory that programs may still take without swapping, bounded by the
// limit of this process's cgroup; 0 if unknown.
int64_t available_memory();

// Rates of one thread by its CPU time, the best of a few runs.
struct MachineRates {
  double sgemm_gflops = 0;           // 1024³
  double packed_gflops = 0;          // bf16 tiles that stay in cache
  double copy_bytes_per_second = 0;  // read and written
};
MachineRates measure_rates();
// The GPU's rates in the same form; the packed loop is that of its tensor
// cores.
MachineRates measure_gpu_rates();
// Returns the better of each: a machine has slow phases, but no fast ones.
MachineRates best_of(const MachineRates& a, const MachineRates& b);

}  // namespace canzona

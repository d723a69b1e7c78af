// Describes the machine and how fast it is at best. It is printed beside every
// measurement so that figures can be judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/plan/plan.h"

namespace canzona::measure {

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

// Estimates how long a plan's steps would take here, for predictions that are
// printed without a cost table.
//
//   MachineSpeed speed = measure_speed(world, *engine, product_type(plan));
//   std::vector<RankCost> ranks = predict(priced(plan, speed));
//
// A priced copy is only for printing: plans never depend on a clock.

// The speed of one rank while all of them work.
struct MachineSpeed {
  double flops_per_second = 0;
  double copy_bytes_per_second = 0;
  DType precision = DType::kFp32;  // of the products
};

// Takes less than a second in fp32. All ranks must call at the same time; all
// get the same result.
MachineSpeed measure_speed(Communicator& world, Engine& engine,
                           DType precision);

// Measures on ranks that are threads of this process: as many as in the plan,
// at most one per CPU.
MachineSpeed measure_speed_here(const Plan& plan);

// The type of the rule's products: bf16, otherwise fp32.
DType product_type(const Plan& plan);

// True if the plan's costs are flops, which need a rate to become seconds.
bool lacks_cost_table(const Plan& plan);

// Returns the plan with measured rates instead of nominal ones; links that were
// not given become copies in memory. A plan with a cost table is returned
// unchanged.
Plan priced(const Plan& plan, const MachineSpeed& speed);

// Checks what a run depends on beside the processor: the disk of a folder.

struct DiskInfo {
  std::string folder;
  int64_t free_bytes = -1;            // for this user; -1: unknown
  double write_bytes_per_second = 0;  // until they are on disk
  std::string problem = {};           // why writing fails; "" if it works
};
// Writes `bytes` to a temporary file in the folder, and removes it.
DiskInfo measure_disk(const std::string& folder,
                      int64_t bytes = int64_t{64} << 20);

}  // namespace canzona::measure

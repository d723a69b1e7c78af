#include "canzona/measure/machine.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <fstream>
#include <thread>

#include "canzona/base/text.h"
#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/clock.h"

namespace canzona {
namespace {

// Returns the kernel's name for the first CPU; other architectures have none.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<std::string> feature_names() {
  const CpuFeatures& cpu = cpu_features();
  std::vector<std::string> names;
  if (cpu.avx2) names.emplace_back("avx2");
  if (cpu.avx512) names.emplace_back("avx512");
  if (cpu.avx512_bf16) names.emplace_back("avx512_bf16");
  if (cpu.amx_bf16) names.emplace_back("amx_bf16");
  return names;
}

// Returns the number that is a file's only content; -1 if it is not a number
// ("max").
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

// Returns the number after a word in a file; -1 if there is none.
int64_t number_after(const char* path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  while (file >> word)
    if (word == name && file >> number) return number;
  return -1;
}

int64_t available_in_machine() {
  const int64_t kilobytes = number_after("/proc/meminfo", "MemAvailable:");
  return kilobytes < 0 ? -1 : kilobytes << 10;
}

// Adds the page cache, which is reclaimed when memory is short.
int64_t available_in_group() {
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  const int64_t files = number_after("/sys/fs/cgroup/memory.stat", "file");
  if (limit < 0 || used < 0) return -1;
  return std::max<int64_t>(0, limit - used + std::max<int64_t>(0, files));
}

// The file has "200000 100000": microseconds of CPU time per period; "max" is
// unlimited.
int cpus_in_group() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || period <= 0) return INT_MAX;
  return std::max(1, static_cast<int>(quota / period));
}

// Copies far more than any cache holds.
double measure_own_copy_rate() {
  constexpr size_t kBytes = size_t{256} << 20;
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  double best = 1e9;
  for (int round = 0; round < 3; ++round)
    best = std::min(best, seconds_of(1, [&] {
                      std::memcpy(to.data(), from.data(), kBytes);
                    }));
  return 2.0 * kBytes / best;
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = cpu_name();
  info.num_cpus =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  struct sysinfo memory {};
  if (sysinfo(&memory) == 0)
    info.memory_bytes = static_cast<int64_t>(memory.totalram) *
                        static_cast<int64_t>(memory.mem_unit);
  info.features = feature_names();
  for (const Bf16Kernel kernel : usable_bf16_kernels())
    info.bf16_kernels.emplace_back(to_string(kernel));
  info.blas = blas_info();
  return info;
}

int usable_cpus() {
  const int there =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::min(there, cpus_in_group());
}

int64_t available_memory() {
  const int64_t machine = available_in_machine();
  const int64_t group = available_in_group();
  if (machine < 0 || group < 0) return std::max({machine, group, int64_t{0}});
  return std::min(machine, group);
}

MachineRates measure_rates() {
  return {measure_sgemm_gflops(),
          measure_packed_gflops(usable_bf16_kernels().front()),
          measure_own_copy_rate()};
}

MachineRates measure_gpu_rates() {
  const CudaRates rates = measure_cuda_rates();
  return {.sgemm_gflops = rates.fp32_tflops * 1e3,
          .packed_gflops = std::max(rates.fp16_tflops, rates.bf16_tflops) * 1e3,
          .copy_bytes_per_second = rates.copy_bytes_per_second};
}

MachineRates best_of(const MachineRates& a, const MachineRates& b) {
  return {std::max(a.sgemm_gflops, b.sgemm_gflops),
          std::max(a.packed_gflops, b.packed_gflops),
          std::max(a.copy_bytes_per_second, b.copy_bytes_per_second)};
}

}  // namespace canzona

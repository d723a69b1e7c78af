#include "canzona/measure/machine.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "canzona/base/text.h"
#include "canzona/linalg/cpu/bf16/rate.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/clock.h"

namespace canzona {
namespace {

// The kernel's name for the first CPU; other architectures have none.
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

// Far more than any cache holds.
double measure_copy_rate() {
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

MachineRates measure_rates() {
  return {measure_sgemm_gflops(),
          measure_packed_gflops(usable_bf16_kernels().front()),
          measure_copy_rate()};
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

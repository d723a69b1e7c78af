#include "canzona/measure/machine.h"

#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/stages.h"
#include "canzona/measure/calibrate.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/step_times.h"
#include "canzona/rules/facts.h"

namespace canzona::measure {
namespace {

constexpr int64_t kElements = int64_t{1} << 24;
constexpr int kRounds = 5;
// Scaling and checking: one read, one write. AdamW: the gradient is read;
// moments and weights are read and written.
constexpr int64_t kBytesPerElement = (2 + 7) * kBytesPerFp32;

}  // namespace

double measure_element_rate(Communicator& world) {
  const std::unique_ptr<Engine> cpu = make_engine("cpu");
  Engine& engine = *cpu;
  DeviceMemory memory(engine);
  const Run grad = memory.noise(kElements, 1);
  const Engine::AdamRuns runs{.grad = grad,
                              .m = memory.zeros(kElements),
                              .v = memory.zeros(kElements),
                              .weights = memory.noise(kElements, 2),
                              .count = kElements};
  const Engine::ScaledStretch whole{grad, kElements};
  const AdamCoefficients adam{.m_keep = 0.9,
                              .m_add = 0.1,
                              .v_keep = 0.999,
                              .v_add = 0.001,
                              .root_scale = 1,
                              .epsilon = 1e-8};
  const Apply apply{.step = -1e-3};
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    world.barrier({.label = "before a measurement"});
    const double passes = seconds_of(1, [&] {
      engine.scale_and_look({&whole, 1}, 0.999);
      engine.adam_apply({&runs, 1}, adam, apply);
    });
    if (round > 0) seconds.push_back(passes);
  }
  return static_cast<double>(kBytesPerElement * kElements) /
         median_of(one_from_all(world, median_of(std::move(seconds))));
}

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

namespace {

void put_rates(const MachineSpeed& speed, SettledRequest& plan) {
  plan.cost_basis = {
      .source = "this machine",
      .seconds_per_tick = 1 / speed.flops_per_second,
      .element_wise_bytes_per_second = speed.copy_bytes_per_second};
  if (plan.options.links.nominal)
    plan.options.links = {speed.copy_bytes_per_second,
                          speed.copy_bytes_per_second,
                          /*latency_seconds=*/0, /*nominal=*/false};
}

}  // namespace

MachineSpeed measure_speed(Communicator& world, Engine& engine,
                           DType precision) {
  return {.flops_per_second = measure_flop_rate(world, engine, precision),
          .copy_bytes_per_second = measure_copy_rate(world),
          .precision = precision};
}

MachineSpeed measure_speed_here(const Plan& plan) {
  const int num_ranks = std::min(plan.mesh.world(), usable_cpus());
  return on_every_rank(on_threads(num_ranks, {}), {}, [&](Communicator& world) {
    return measure_speed(world, *make_cpu_engine(), product_type(plan));
  });
}

DType product_type(const Plan& plan) {
  const RuleOptions options =
      make_rule_facts(plan.rule, plan.rule_options)->options();
  const auto precision = options.find("precision");
  return precision != options.end() && precision->second == "bf16"
             ? DType::kBf16
             : DType::kFp32;
}

bool lacks_cost_table(const Plan& plan) {
  return plan.cost_basis.source == CostBasis{}.source;
}

Plan priced(const Plan& plan, const MachineSpeed& speed) {
  Plan copy = plan;
  if (!lacks_cost_table(plan)) return copy;
  put_rates(speed, copy);
  for (PlanPart& part : copy.parts) put_rates(speed, part);
  return copy;
}

namespace {

using SurroundingsClock = std::chrono::steady_clock;

double seconds_since(SurroundingsClock::time_point begin) {
  return std::chrono::duration<double>(SurroundingsClock::now() - begin)
      .count();
}

// A file that its destructor removes.
class TrialFile {
 public:
  explicit TrialFile(std::string path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC,
                     0600)) {
    if (file_ < 0) fail("cannot be made");
  }
  ~TrialFile() {
    if (file_ >= 0) ::close(file_);
    ::unlink(path_.c_str());
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;

  void write(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(file_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("cannot be written");
      bytes = bytes.subspan(static_cast<size_t>(done));
    }
  }
  void sync() {
    if (::fsync(file_) != 0) fail("cannot be synced");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(
        cat(path_, " ", what, ": ", std::generic_category().message(errno)));
  }
  std::string path_;
  int file_;
};

void time_writes(const std::string& path, int64_t bytes, DiskInfo& disk) {
  const std::vector<char> piece(size_t{4} << 20, 'c');
  TrialFile file(path);
  const auto begin = SurroundingsClock::now();
  for (int64_t left = bytes; left > 0;
       left -= static_cast<int64_t>(piece.size()))
    file.write(std::span(piece).first(
        std::min(piece.size(), static_cast<size_t>(left))));
  file.sync();
  disk.write_bytes_per_second =
      static_cast<double>(bytes) / std::max(seconds_since(begin), 1e-9);
}

}  // namespace

DiskInfo measure_disk(const std::string& folder, int64_t bytes) {
  DiskInfo disk{.folder = folder};
  std::error_code unknown;
  const auto space = std::filesystem::space(folder, unknown);
  if (!unknown) disk.free_bytes = static_cast<int64_t>(space.available);
  const std::string path =
      cat(folder, "/.canzona-doctor-", static_cast<int64_t>(::getpid()));
  try {
    if (disk.free_bytes >= 0 && disk.free_bytes < 2 * bytes)
      throw Error(cat("only ", human_bytes(disk.free_bytes), " are free"));
    time_writes(path, bytes, disk);
  } catch (const std::exception& error) {
    disk.problem = error.what();
  }
  return disk;
}

}  // namespace canzona::measure

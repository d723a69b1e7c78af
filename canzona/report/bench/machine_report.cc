#include "canzona/report/bench/machine_report.h"

#include <fmt/format.h>

#include "canzona/base/text.h"

namespace canzona::report::bench {
namespace {

Document gpu_members(const MachineReport& report) {
  Document out;
  out.set("built", cuda_is_built());
  if (!report.gpu)
    return out.set("device", nullptr).set("why_not", report.why_no_gpu);
  const CudaDeviceInfo& device = *report.gpu;
  out.set("device", device.name);
  out.set("compute_capability", cat(device.major, ".", device.minor));
  out.set("multiprocessors", device.num_multiprocessors);
  out.set("memory_bytes", device.memory_bytes);
  out.set("free_bytes", device.free_bytes).set("l2_bytes", device.l2_bytes);
  out.set("shared_memory_per_block", device.shared_memory_per_block);
  return out.set("driver", device.driver).set("runtime", device.runtime);
}

std::string gpu_text(const MachineReport& report) {
  if (!cuda_is_built()) return "not in this build";
  if (!report.gpu) return report.why_no_gpu;
  const CudaDeviceInfo& device = *report.gpu;
  return fmt::format(
      "{}, {} multiprocessors of {}.{}, {}, L2 {}, driver {}, runtime {}",
      device.name, device.num_multiprocessors, device.major, device.minor,
      human_bytes(device.memory_bytes), human_bytes(device.l2_bytes),
      device.driver, device.runtime);
}

std::string disk_text(const DiskInfo& disk) {
  const std::string free =
      disk.free_bytes < 0 ? "" : human_bytes(disk.free_bytes) + " free";
  if (!disk.problem.empty())
    return cat(free, free.empty() ? "" : ", ", "cannot be written");
  return fmt::format("{}, {:.0f} MB/s written and synced", free,
                     disk.write_bytes_per_second / 1e6);
}

}  // namespace

std::vector<std::string> problems_of(const MachineReport& report) {
  const BlasInfo& blas = report.machine.blas;
  std::vector<std::string> found;
  if (blas.fallback_core)
    found.push_back(cat("OpenBLAS runs its kernels for ", blas.core,
                        ", which are far slower than this CPU allows; unset "
                        "OPENBLAS_CORETYPE, or link OpenBLAS statically"));
  if (!report.disk.problem.empty())
    found.push_back(cat("the working folder cannot hold a run: ",
                        printable(report.disk.problem)));
  return found;
}

Document machine_view(const MachineReport& report) {
  const MachineInfo& machine = report.machine;
  const MachineRates& rates = report.rates;
  const std::vector<std::string> found = problems_of(report);
  Document out;
  const auto line = [&](std::string_view name, const std::string& value) {
    out.text(cat(pad_right(name, 14), value, "\n"));
  };
  line("cpu", cat(machine.cpu, ", ", machine.num_cpus, " logical"));
  line("features",
       machine.features.empty() ? "none" : join(machine.features, ", "));
  line("memory", human_bytes(machine.memory_bytes));
  line("blas", cat(machine.blas.library, ", core ", machine.blas.core,
                   ", linked ", machine.blas.shared ? "shared" : "static"));
  line("sgemm", fmt::format("{:.0f} GF/s on one thread, 1024 cubed",
                            rates.sgemm_gflops));
  line("bf16",
       fmt::format("{}; {:.0f} GF/s in the packed loop",
                   join(machine.bf16_kernels, ", "), rates.packed_gflops));
  line("copy", fmt::format("{:.1f} GB/s read and written",
                           rates.copy_bytes_per_second / 1e9));
  line("cuda", gpu_text(report));
  if (report.num_gpus > 1)
    line("gpus", cat(report.num_gpus, " for NCCL processes"));
  line("mpi", report.mpi);
  line("nccl", report.nccl);
  line("disk", disk_text(report.disk));
  for (const std::string& problem : found)
    out.text(cat(toned(Tone::kPoor, "problem: "), problem, "\n"));
  if (found.empty()) out.text(toned(Tone::kGood, "no problems found") + "\n");
  out.set("text", print_text(out, Ink())).set("problems", found);
  out.set("cpu", machine.cpu).set("cpus", machine.num_cpus);
  out.set("memory_bytes", machine.memory_bytes);
  out.set("features", machine.features);
  out.set("bf16_kernels", machine.bf16_kernels);
  out.set("blas", machine.blas.library).set("core", machine.blas.core);
  out.set("blas_linked", machine.blas.shared ? "shared" : "static");
  out.set("fallback_core", machine.blas.fallback_core);
  out.set("sgemm_gflops", rates.sgemm_gflops);
  out.set("packed_gflops", rates.packed_gflops);
  out.set("copy_bytes_per_second", rates.copy_bytes_per_second);
  const DiskInfo& disk = report.disk;
  out.set("disk", {{"folder", disk.folder},
                   {"free_bytes", disk.free_bytes < 0 ? Value(nullptr)
                                                      : Value(disk.free_bytes)},
                   {"write_bytes_per_second", disk.write_bytes_per_second},
                   {"problem", disk.problem}});
  out.set("mpi", report.mpi).set("nccl", report.nccl);
  out.set("gpus", report.num_gpus);
  return out.add("cuda", gpu_members(report));
}

}  // namespace canzona::report::bench

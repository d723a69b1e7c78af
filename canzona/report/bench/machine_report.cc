#include "canzona/report/bench/machine_report.h"

#include <fmt/format.h>

#include "canzona/base/device_kind.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

void add_rates(const MachineRates& rates, Document& out) {
  out.set("sgemm_gflops", rates.sgemm_gflops);
  out.set("packed_gflops", rates.packed_gflops);
  out.set("copy_bytes_per_second", rates.copy_bytes_per_second);
}

std::string transform_heading(const TransformReport& report) {
  const TransformRequest& request = report.request;
  const MachineInfo& machine = report.machine;
  const MachineRates& rates = report.rates;
  if (device_kind(request.device).has_own_memory)
    return fmt::format(
        "{} x {} on {}\n"
        "fp32 {:.0f} TF/s, tensor cores {:.0f} TF/s; copy {:.0f} GB/s\n\n",
        request.batch, to_string(request.shape),
        find_cuda_device(nullptr)->name, rates.sgemm_gflops / 1e3,
        rates.packed_gflops / 1e3, rates.copy_bytes_per_second / 1e9);
  return fmt::format(
      "{} x {} on {} thread{} of {}\n"
      "OpenBLAS core {}, sgemm {:.0f} GF/s; bf16 by {}, packed loop {:.0f} "
      "GF/s; copy {:.1f} GB/s\n\n",
      request.batch, to_string(request.shape), request.num_threads,
      request.num_threads == 1 ? "" : "s", machine.cpu, machine.blas.core,
      rates.sgemm_gflops, machine.bf16_kernels.front(), rates.packed_gflops,
      rates.copy_bytes_per_second / 1e9);
}

Field milliseconds(const char* key, const char* heading, double seconds) {
  return {key, heading, seconds, fmt::format("{:.3f}", seconds * 1e3)};
}

// "1.25x"
std::string times_text(double ratio) { return fmt::format("{:.2f}x", ratio); }

// The speed-up is relative to the first row of the same precision.
Listing transform_rows(const TransformReport& report) {
  Listing rows;
  const TransformRow* first = nullptr;
  for (const TransformRow& row : report.rows) {
    if (first == nullptr || first->precision != row.precision) first = &row;
    const double least = transform_floor(report.request, row, report.rates);
    rows.add({{"algorithm", "<algorithm", row.algorithm},
              {"precision", "<precision", row.precision},
              milliseconds("seconds", ">ms", row.seconds),
              {"", ">speed-up", times_text(first->seconds / row.seconds)},
              {"error_vs_fp64", ">error", row.error_vs_fp64,
               fmt::format("{:.1e}", row.error_vs_fp64)},
              milliseconds("floor_seconds", ">floor ms", least),
              {"", ">of floor", times_text(row.seconds / least)}});
  }
  return rows;
}

void add_stages(const char* key, const std::string& heading,
                const std::vector<Engine::StageTime>& stages, Document& out) {
  double total = 0;
  for (const Engine::StageTime& stage : stages) total += stage.seconds;
  Listing rows;
  Members members;
  for (const Engine::StageTime& stage : stages) {
    members.push_back({stage.stage, stage.seconds});
    rows.add({{"", "<by stage", stage.stage},
              milliseconds("", ">ms", stage.seconds),
              {"", ">", fmt::format("{:.1f} %", 100 * stage.seconds / total)},
              {"", ">calls", stage.calls}});
  }
  if (!stages.empty()) out.text(heading);
  out.table("", rows).set(key, members);
}

// Names only the hardware that was used: the bf16 kernel is idle in an fp32
// step.
std::string hardware_text(const RuleStepRequest& request,
                          const RuleStep& step) {
  if (device_kind(request.device).has_own_memory || step.precision == "bf16")
    return step.device;
  const BlasInfo blas = blas_info();
  return cat(blas.library, " ", blas.core);
}

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

std::string limit_text(int64_t value, const std::string& unit) {
  if (value < 0) return "unlimited";
  return unit.empty() ? cat(value) : human_bytes(value);
}

std::string limits_text(const std::vector<ProcessLimit>& limits) {
  std::vector<std::string> words;
  for (const ProcessLimit& limit : limits) {
    const std::string soft = limit_text(limit.soft, limit.unit);
    const std::string hard = limit_text(limit.hard, limit.unit);
    words.push_back(cat(limit.name, " ", soft,
                        hard == soft ? "" : cat(" (up to ", hard, ")")));
  }
  return join(words, ", ");
}

std::string disk_text(const DiskInfo& disk) {
  const std::string free =
      disk.free_bytes < 0 ? "" : human_bytes(disk.free_bytes) + " free";
  if (!disk.problem.empty())
    return cat(free, free.empty() ? "" : ", ", "cannot be written");
  return fmt::format("{}, {:.0f} MB/s written and synced, {} for a small file",
                     free, disk.write_bytes_per_second / 1e6,
                     human_seconds(disk.commit_seconds));
}

// A single rank can only run a sum with itself.
std::string exchange_text(const ExchangeInfo& exchange) {
  const std::string what =
      exchange.num_ranks == 1
          ? std::string("sum of a single rank")
          : cat("all-to-all of ", exchange.num_ranks, " ranks");
  return exchange.problem.empty()
             ? cat(what, " in ", human_seconds(exchange.seconds))
             : cat(what, " failed");
}

const char* exchange_name(const ExchangeInfo& exchange) {
  if (exchange.transport == "nccl") return "nccl ranks";
  return exchange.transport == "mpi" ? "processes" : "threads";
}

std::string peers_text(const CudaPeers& gpu) {
  std::vector<std::string> peers;
  for (const int peer : gpu.peers) peers.push_back(cat(peer));
  return cat(gpu.name, " at ", gpu.bus, ", ",
             peers.empty() ? "has no direct access to other GPUs"
                           : cat("reaches ", join(peers, " "), " directly"));
}

Value limit_value(int64_t value) {
  return value < 0 ? Value(nullptr) : Value(value);
}

void add_surroundings(const MachineReport& report, Document& out) {
  const DiskInfo& disk = report.disk;
  Listing limits, devices, exchanges;
  for (const ProcessLimit& limit : report.limits) {
    Row& row = limits.add().set("name", limit.name).set("unit", limit.unit);
    row.set("soft", limit_value(limit.soft));
    row.set("hard", limit_value(limit.hard));
  }
  for (const CudaPeers& gpu : report.gpus)
    devices.add()
        .set("name", gpu.name)
        .set("bus", gpu.bus)
        .set("peers", gpu.peers);
  for (const ExchangeInfo& exchange : report.exchanges) {
    Row& row = exchanges.add().set("transport", exchange.transport);
    row.set("ranks", exchange.num_ranks).set("seconds", exchange.seconds);
    row.set("problem", exchange.problem);
  }
  out.set("disk", {{"folder", disk.folder},
                   {"free_bytes", limit_value(disk.free_bytes)},
                   {"write_bytes_per_second", disk.write_bytes_per_second},
                   {"commit_seconds", disk.commit_seconds},
                   {"problem", disk.problem}});
  out.set("limits", limits.value()).set("devices", devices.value());
  out.set("exchanges", exchanges.value()).set("sigpipe", report.sigpipe);
  out.set("mpi", report.mpi).set("nccl", report.nccl);
  out.set("nccl_network", report.nccl_network).set("gpus", report.num_gpus);
}

}  // namespace

Document transform_view(const TransformReport& report) {
  const TransformRequest& request = report.request;
  const MachineInfo& machine = report.machine;
  Document out;
  out.text(transform_heading(report));
  out.table("results", transform_rows(report), "", 0);
  out.text(cat("\nrule muon runs ", report.algorithm,
               " on this shape; precision: ", report.precision.text(), "\n"));
  out.add(precision_members(report.precision));
  out.set("device", request.device).set("algorithm", report.algorithm);
  out.set("cpu", machine.cpu).set("core", machine.blas.core);
  add_rates(report.rates, out);
  out.set("bf16_kernel", machine.bf16_kernels.front());
  out.set("shape", to_string(request.shape)).set("batch", request.batch);
  return out.set("threads", request.num_threads).set("rounds", request.rounds);
}

Document rule_step_view(const RuleStepReport& report) {
  const RuleStepRequest& request = report.request;
  const RuleStep& step = report.step;
  Document out;
  out.text(cat(request.rule, " in ", step.precision, " on ",
               counted_text(std::ssize(request.tensors), "tensor"), " of ",
               printable(report.model), ", ", hardware_text(request, step),
               "\n"));
  if (!report.precision.precision.empty())
    out.text(cat("precision: ", report.precision.text(), "\n"));
  out.text("\n").add(precision_members(report.precision));
  Members algorithms;
  for (const auto& [shape, algorithm] : step.algorithms) {
    out.text(cat("  ", pad_right(shape, 14), " ", algorithm, "\n"));
    algorithms.push_back({shape, algorithm});
  }
  out.text(fmt::format(
      "\nstep {:.3f} ms (median of {}), {:.2f}x the floor of {:.3f} ms\n"
      "host {:.3f} ms\n"
      "floor: {:.3g} TFLOP at {:.3g} TF/s, then {} at {:.3g} TB/s\n",
      step.seconds * 1e3, request.rounds, step.seconds / step.floor_seconds,
      step.floor_seconds * 1e3, step.host_seconds * 1e3, step.flops / 1e12,
      step.peak_tflops, human_bytes(static_cast<int64_t>(step.bytes)),
      step.copy_bytes_per_second / 1e12));
  if (step.refresh_seconds > 1.5 * step.seconds)
    out.text(fmt::format("the slowest kind of step takes {:.3f} ms\n",
                         step.refresh_seconds * 1e3));
  add_stages("seconds_by_stage", "\n", step.stages, out);
  add_stages("refresh_seconds_by_stage", "\nin the slowest step of a period\n",
             step.refresh_stages, out);
  out.set("model", report.model).set("rule", request.rule);
  out.set("device", request.device).set("hardware", step.device);
  out.set("tensors", request.tensors.size()).set("rounds", request.rounds);
  out.set("graph", request.graph).set("seconds", step.seconds);
  out.set("least_seconds", step.least_seconds);
  out.set("median_seconds", step.median_seconds);
  out.set("refresh_seconds", step.refresh_seconds);
  out.set("host_seconds", step.host_seconds);
  out.set("algorithm_by_shape", algorithms).set("flops", step.flops);
  out.set("bytes", step.bytes).set("peak_tflops", step.peak_tflops);
  out.set("copy_bytes_per_second", step.copy_bytes_per_second);
  out.set("floor_seconds", step.floor_seconds);
  return out.set("memory_bytes", step.memory_bytes);
}

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
  for (const ExchangeInfo& exchange : report.exchanges)
    if (!exchange.problem.empty())
      found.push_back(
          cat("ranks of ", exchange.transport,
              " do not reach each other: ", printable(exchange.problem)));
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
  for (size_t gpu = 0; gpu < report.gpus.size() && report.gpus.size() > 1;
       ++gpu)
    line(cat("gpu ", gpu), peers_text(report.gpus[gpu]));
  line("mpi", report.mpi);
  line("nccl", cat(report.nccl, report.nccl_network.empty() ? "" : ", network ",
                   report.nccl_network));
  for (const ExchangeInfo& exchange : report.exchanges)
    line(exchange_name(exchange), exchange_text(exchange));
  line("disk", disk_text(report.disk));
  line("limits", limits_text(report.limits));
  line("sigpipe", report.sigpipe);
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
  add_rates(rates, out);
  add_surroundings(report, out);
  return out.add("cuda", gpu_members(report));
}

}  // namespace canzona

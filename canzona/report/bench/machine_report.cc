#include "canzona/report/bench/machine_report.h"

#include <fmt/format.h>

#include "canzona/base/device_kind.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

void write_rates(JsonWriter& out, const MachineRates& rates) {
  out.field("sgemm_gflops", rates.sgemm_gflops);
  out.field("packed_gflops", rates.packed_gflops);
  out.field("copy_bytes_per_second", rates.copy_bytes_per_second);
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

// The speed-up is relative to the first row of the same precision.
std::string transform_rows(const TransformReport& report, const Ink& ink) {
  std::string out =
      ink(Tone::kBold, fmt::format("{:10}  {:9}  {:>10}  {:>8}  {:>9}  {:>10}  "
                                   "{:>9}",
                                   "algorithm", "precision", "ms", "speed-up",
                                   "error", "floor ms", "of floor")) +
      "\n";
  const TransformRow* first = nullptr;
  for (const TransformRow& row : report.rows) {
    if (first == nullptr || first->precision != row.precision) first = &row;
    const double least = transform_floor(report.request, row, report.rates);
    out += fmt::format(
        "{:10}  {:9}  {:10.3f}  {:7.2f}x  {:9.1e}  {:10.3f}  {:8.2f}x\n",
        row.algorithm, row.precision, row.seconds * 1e3,
        first->seconds / row.seconds, row.error_vs_fp64, least * 1e3,
        row.seconds / least);
  }
  return out;
}

void write_stages(JsonWriter& out, std::string_view name,
                  const std::vector<Engine::StageTime>& stages) {
  out.member(name).begin_object();
  for (const Engine::StageTime& stage : stages)
    out.field(stage.stage, stage.seconds);
  out.end_object();
}

std::string stage_lines(const std::vector<Engine::StageTime>& stages) {
  double total = 0;
  for (const Engine::StageTime& stage : stages) total += stage.seconds;
  std::string out;
  for (const Engine::StageTime& stage : stages)
    out += fmt::format("  {:20} {:9.3f} ms  {:5.1f} %  {} calls\n", stage.stage,
                       stage.seconds * 1e3, 100 * stage.seconds / total,
                       stage.calls);
  return out;
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

void write_gpu(JsonWriter& out, const MachineReport& report) {
  out.begin_object().field("built", cuda_is_built());
  if (const auto& device = report.gpu) {
    out.field("device", device->name);
    out.field("compute_capability", cat(device->major, ".", device->minor));
    out.field("multiprocessors", device->num_multiprocessors);
    out.field("memory_bytes", device->memory_bytes);
    out.field("free_bytes", device->free_bytes);
    out.field("l2_bytes", device->l2_bytes);
    out.field("shared_memory_per_block", device->shared_memory_per_block);
    out.field("driver", device->driver).field("runtime", device->runtime);
  } else {
    out.member("device").null();
    out.field("why_not", report.why_no_gpu);
  }
  out.end_object();
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

void write_limit(JsonWriter& out, const char* name, int64_t value) {
  out.member(name);
  if (value < 0)
    out.null();
  else
    out.value(value);
}

void write_surroundings(JsonWriter& out, const MachineReport& report) {
  const DiskInfo& disk = report.disk;
  out.member("disk").begin_object().field("folder", disk.folder);
  write_limit(out, "free_bytes", disk.free_bytes);
  out.field("write_bytes_per_second", disk.write_bytes_per_second)
      .field("commit_seconds", disk.commit_seconds)
      .field("problem", disk.problem)
      .end_object();
  out.member("limits").begin_array();
  for (const ProcessLimit& limit : report.limits) {
    out.begin_object().field("name", limit.name).field("unit", limit.unit);
    write_limit(out, "soft", limit.soft);
    write_limit(out, "hard", limit.hard);
    out.end_object();
  }
  out.end_array();
  out.field("sigpipe", report.sigpipe).field("mpi", report.mpi);
  out.field("nccl", report.nccl).field("nccl_network", report.nccl_network);
  out.field("gpus", report.num_gpus);
  out.member("devices").begin_array();
  for (const CudaPeers& gpu : report.gpus) {
    out.begin_object().field("name", gpu.name).field("bus", gpu.bus);
    out.member("peers").values(gpu.peers);
    out.end_object();
  }
  out.end_array();
  out.member("exchanges").begin_array();
  for (const ExchangeInfo& exchange : report.exchanges)
    out.begin_object()
        .field("transport", exchange.transport)
        .field("ranks", exchange.num_ranks)
        .field("seconds", exchange.seconds)
        .field("problem", exchange.problem)
        .end_object();
  out.end_array();
}

}  // namespace

std::string transform_text(const TransformReport& report, const Ink& ink) {
  return transform_heading(report) + transform_rows(report, ink) +
         fmt::format("\nrule muon runs {} on this shape; precision: {}\n",
                     report.algorithm, report.precision.text());
}

std::string transform_json(const TransformReport& report) {
  const TransformRequest& request = report.request;
  const MachineInfo& machine = report.machine;
  JsonWriter out(2);
  out.begin_object();
  out.field("device", request.device);
  write_precision(out, report.precision);
  out.field("algorithm", report.algorithm);
  out.field("cpu", machine.cpu).field("core", machine.blas.core);
  write_rates(out, report.rates);
  out.field("bf16_kernel", machine.bf16_kernels.front());
  out.field("shape", to_string(request.shape)).field("batch", request.batch);
  out.field("threads", request.num_threads).field("rounds", request.rounds);
  out.member("results").begin_array();
  for (const TransformRow& row : report.rows) {
    out.begin_object();
    out.field("algorithm", row.algorithm).field("precision", row.precision);
    out.field("seconds", row.seconds);
    out.field("error_vs_fp64", row.error_vs_fp64);
    out.field("floor_seconds", transform_floor(request, row, report.rates));
    out.end_object();
  }
  out.end_array().end_object();
  return out.take() + "\n";
}

std::string rule_step_text(const RuleStepReport& report) {
  const RuleStepRequest& request = report.request;
  const RuleStep& step = report.step;
  std::string out =
      fmt::format("{} in {} on {} of {}, {}\n", request.rule, step.precision,
                  counted_text(std::ssize(request.tensors), "tensor"),
                  printable(report.model), hardware_text(request, step));
  if (!report.precision.precision.empty())
    out += "precision: " + report.precision.text() + "\n";
  out += "\n";
  for (const auto& [shape, algorithm] : step.algorithms)
    out += fmt::format("  {:14} {}\n", shape, algorithm);
  out += fmt::format(
      "\nstep {:.3f} ms (median of {}), {:.2f}x the floor of {:.3f} ms\n"
      "host {:.3f} ms\n"
      "floor: {:.3g} TFLOP at {:.3g} TF/s, then {} at {:.3g} TB/s\n",
      step.seconds * 1e3, request.rounds, step.seconds / step.floor_seconds,
      step.floor_seconds * 1e3, step.host_seconds * 1e3, step.flops / 1e12,
      step.peak_tflops, human_bytes(static_cast<int64_t>(step.bytes)),
      step.copy_bytes_per_second / 1e12);
  if (step.refresh_seconds > 1.5 * step.seconds)
    out += fmt::format("the slowest kind of step takes {:.3f} ms\n",
                       step.refresh_seconds * 1e3);
  if (!step.stages.empty()) out += "\nby stage\n" + stage_lines(step.stages);
  if (!step.refresh_stages.empty())
    out += "\nby stage, in the slowest step of a period\n" +
           stage_lines(step.refresh_stages);
  return out;
}

std::string rule_step_json(const RuleStepReport& report) {
  const RuleStepRequest& request = report.request;
  const RuleStep& step = report.step;
  JsonWriter out(2);
  out.begin_object();
  out.field("model", report.model)
      .field("rule", request.rule)
      .field("device", request.device);
  write_precision(out, report.precision);
  out.field("hardware", step.device);
  out.field("tensors", static_cast<int64_t>(request.tensors.size()));
  out.field("rounds", request.rounds).field("graph", request.graph);
  out.field("seconds", step.seconds);
  out.field("least_seconds", step.least_seconds);
  out.field("median_seconds", step.median_seconds);
  out.field("refresh_seconds", step.refresh_seconds);
  out.field("host_seconds", step.host_seconds);
  write_stages(out, "seconds_by_stage", step.stages);
  write_stages(out, "refresh_seconds_by_stage", step.refresh_stages);
  out.member("algorithm_by_shape").begin_object();
  for (const auto& [shape, algorithm] : step.algorithms)
    out.field(shape, algorithm);
  out.end_object();
  out.field("flops", step.flops).field("bytes", step.bytes);
  out.field("peak_tflops", step.peak_tflops);
  out.field("copy_bytes_per_second", step.copy_bytes_per_second);
  out.field("floor_seconds", step.floor_seconds);
  out.field("memory_bytes", step.memory_bytes);
  out.end_object();
  return out.take() + "\n";
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

std::string machine_text(const MachineReport& report, const Ink& ink) {
  const MachineInfo& machine = report.machine;
  const MachineRates& rates = report.rates;
  const std::vector<std::string> found = problems_of(report);
  const auto line = [](const char* name, const std::string& value) {
    return fmt::format("{:14}{}\n", name, value);
  };
  const auto or_none = [](const std::vector<std::string>& words) {
    return words.empty() ? std::string("none") : join(words, ", ");
  };
  std::string out;
  out +=
      line("cpu", fmt::format("{}, {} logical", machine.cpu, machine.num_cpus));
  out += line("features", or_none(machine.features));
  out += line("memory", human_bytes(machine.memory_bytes));
  out += line("blas", fmt::format("{}, core {}, linked {}",
                                  machine.blas.library, machine.blas.core,
                                  machine.blas.shared ? "shared" : "static"));
  out += line("sgemm", fmt::format("{:.0f} GF/s on one thread, 1024 cubed",
                                   rates.sgemm_gflops));
  out += line("bf16", fmt::format("{}; {:.0f} GF/s in the packed loop",
                                  join(machine.bf16_kernels, ", "),
                                  rates.packed_gflops));
  out += line("copy", fmt::format("{:.1f} GB/s read and written",
                                  rates.copy_bytes_per_second / 1e9));
  out += line("cuda", gpu_text(report));
  if (report.num_gpus > 1)
    out += line("gpus", fmt::format("{} for NCCL processes", report.num_gpus));
  for (size_t gpu = 0; gpu < report.gpus.size() && report.gpus.size() > 1;
       ++gpu)
    out += line(cat("gpu ", gpu).c_str(), peers_text(report.gpus[gpu]));
  out += line("mpi", report.mpi);
  out += line("nccl",
              cat(report.nccl, report.nccl_network.empty()
                                   ? ""
                                   : cat(", network ", report.nccl_network)));
  for (const ExchangeInfo& exchange : report.exchanges)
    out += line(exchange_name(exchange), exchange_text(exchange));
  out += line("disk", disk_text(report.disk));
  out += line("limits", limits_text(report.limits));
  out += line("sigpipe", report.sigpipe);
  for (const std::string& problem : found)
    out += cat(ink(Tone::kPoor, "problem: "), problem, "\n");
  if (found.empty()) out += ink(Tone::kGood, "no problems found") + "\n";
  return out;
}

std::string machine_json(const MachineReport& report) {
  const MachineInfo& machine = report.machine;
  JsonWriter out(2);
  out.begin_object();
  out.field("cpu", machine.cpu).field("cpus", machine.num_cpus);
  out.field("memory_bytes", machine.memory_bytes);
  out.member("features").values(machine.features);
  out.member("bf16_kernels").values(machine.bf16_kernels);
  out.field("blas", machine.blas.library).field("core", machine.blas.core);
  out.field("blas_linked", machine.blas.shared ? "shared" : "static");
  out.field("fallback_core", machine.blas.fallback_core);
  write_rates(out, report.rates);
  write_gpu(out.member("cuda"), report);
  write_surroundings(out, report);
  out.field("text", machine_text(report, Ink()));
  out.member("problems").values(problems_of(report));
  out.end_object();
  return out.take() + "\n";
}

}  // namespace canzona

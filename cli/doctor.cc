// `canzona doctor`: what this machine has, how fast it is, what is wrong.
#include <fmt/format.h>

#include <memory>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/machine.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kDoctorExamples =
    R"(Examples:
  canzona doctor
  canzona doctor --json

Exit status: 0 all is well, 1 something slows this machine down.
)";

std::vector<std::string> problems(const MachineInfo& machine) {
  std::vector<std::string> found;
  if (machine.blas.fallback_core)
    found.push_back(
        cat("OpenBLAS runs its kernels for ", machine.blas.core,
            ", far below what this CPU can do; unset OPENBLAS_CORETYPE, or "
            "link OpenBLAS statically"));
  return found;
}

struct Gpu {
  std::optional<CudaDeviceInfo> device;
  std::string why_not;
};

Gpu find_gpu() {
  Gpu gpu;
  gpu.device = find_cuda_device(&gpu.why_not);
  return gpu;
}

void write_json(JsonWriter& out, const Gpu& gpu) {
  out.begin_object().field("built", cuda_is_built());
  if (const auto& device = gpu.device) {
    out.field("device", device->name);
    out.field("compute_capability", cat(device->major, ".", device->minor));
    out.field("multiprocessors", device->num_multiprocessors);
    out.field("memory_bytes", device->memory_bytes);
    out.field("l2_bytes", device->l2_bytes);
    out.field("shared_memory_per_block", device->shared_memory_per_block);
    out.field("driver", device->driver).field("runtime", device->runtime);
  } else {
    out.member("device").null();
    out.field("why_not", gpu.why_not);
  }
  out.end_object();
}

std::string as_text(const Gpu& gpu) {
  if (!cuda_is_built()) return "not in this build";
  if (!gpu.device) return gpu.why_not;
  const CudaDeviceInfo& device = *gpu.device;
  return fmt::format(
      "{}, {} multiprocessors of {}.{}, {}, L2 {}, driver {}, runtime {}",
      device.name, device.num_multiprocessors, device.major, device.minor,
      human_bytes(device.memory_bytes), human_bytes(device.l2_bytes),
      device.driver, device.runtime);
}

std::string as_json(const MachineInfo& machine, const MachineRates& rates,
                    const Gpu& gpu, const std::vector<std::string>& found) {
  JsonWriter out(2);
  out.begin_object();
  out.field("cpu", machine.cpu).field("cpus", machine.num_cpus);
  out.field("memory_bytes", machine.memory_bytes);
  out.member("features").values(machine.features);
  out.member("bf16_kernels").values(machine.bf16_kernels);
  out.field("blas", machine.blas.library).field("core", machine.blas.core);
  out.field("blas_linked", machine.blas.shared ? "shared" : "static");
  out.field("fallback_core", machine.blas.fallback_core);
  out.field("sgemm_gflops", rates.sgemm_gflops);
  out.field("packed_gflops", rates.packed_gflops);
  out.field("copy_bytes_per_second", rates.copy_bytes_per_second);
  write_json(out.member("cuda"), gpu);
  out.member("problems").values(found);
  out.end_object();
  return out.take() + "\n";
}

std::string as_text(const MachineInfo& machine, const MachineRates& rates,
                    const Gpu& gpu, const std::vector<std::string>& found,
                    const Ink& ink) {
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
  out += line("cuda", as_text(gpu));
  for (const std::string& problem : found)
    out += cat(ink(Tone::kPoor, "problem: "), problem, "\n");
  if (found.empty()) out += ink(Tone::kGood, "all is well") + "\n";
  return out;
}

Outcome run(bool json, const Output& out) {
  out.progress("measuring the machine");
  const MachineInfo machine = machine_info();
  const MachineRates rates = measure_rates();
  const Gpu gpu = find_gpu();
  const std::vector<std::string> found = problems(machine);
  out.progress("");
  out.result(json ? as_json(machine, rates, gpu, found)
                  : as_text(machine, rates, gpu, found, out.ink()));
  return found.empty() ? Outcome::kDone : Outcome::kFailed;
}

}  // namespace

Verb add_doctor(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "doctor", "look at this machine: CPU, BLAS, rates, what slows it down");
  auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "print one JSON object instead of text");
  app->footer(kDoctorExamples);
  return {app, [json](const Output& out) { return run(*json, out); }};
}

}  // namespace canzona::cli

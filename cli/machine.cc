// The verbs about this machine.
#include <fmt/chrono.h>

#include <ctime>

#include "canzona/base/device_kind.h"
#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/nccl/nccl_launch.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/calibrate.h"
#include "canzona/plan/cost/cost_table.h"
#include "canzona/report/bench/machine_report.h"
#include "canzona/rules/facts.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/run_folder.h"
#include "cli/verbs.h"

namespace canzona::cli {

// `canzona calibrate`: the cost table of this machine.
namespace {

constexpr const char* kCalibrateExamples =
    R"(Examples:
  canzona calibrate -o cost.json
  canzona calibrate --precision bf16 -o cost.json
  canzona calibrate --ranks 16 --for plan.json -o cost.json
  canzona calibrate --device cuda -o h200.json
  canzona plan --model qwen3-0.6b --mesh dp=4 --cost cost.json --rule-option device=cpu

Takes a few minutes. Measures one core, or --ranks cores at once (they share caches and
memory, as the ranks of a run do), or a GPU with batches of matrices. --for measures only
what a plan needs: its rule, with its options, on its shapes. docs/cost_table.md describes
the file.
)";

struct CalibrateFlags {
  std::string path;
  std::string device;
  std::string precision;
  std::string plan;
  int rounds = 3;
  int ranks = 1;
  bool json = false;
};

CalibrateRequest request_for_plan(const CalibrateFlags& a) {
  if (!a.device.empty() || !a.precision.empty())
    throw UsageError(
        "--for: the plan's rule determines device and precision; leave out "
        "--device and --precision");
  const PlanFile file = read_plan(a.plan);
  if (!file.violations.empty())
    throw UsageError(cat(quoted(a.plan), " is not sound: ",
                         file.violations.front(), " (see canzona validate)"));
  CalibrateRequest request = calibration_for(file.plan);
  std::string why;
  if (device_kind(request.device).has_own_memory && !find_cuda_device(&why))
    throw UsageError(cat("--for: the plan is for a GPU, and ", why,
                         "; for CPUs, plan with --rule-option device=cpu"));
  return request;
}

CalibrateRequest request_for_device(const CalibrateFlags& a,
                                    const Output& out) {
  const std::string device = a.device.empty() ? "cpu" : a.device;
  const bool gpu = device_kind(device).has_own_memory;
  std::string precision = a.precision;
  if (precision.empty()) {
    RuleOptions options;
    const PrecisionChoice here =
        settle_precision(rules_with("precision").front(), device, options);
    precision = here.precision;
    out.note(cat("precision of Muon's products: ", here.text()));
  }
  const bool known = precision == "fp32" || precision == "bf16" ||
                     (gpu && precision == "fp16");
  if (!known)
    throw UsageError(
        cat("--precision ", quoted(precision),
            gpu ? ": expected fp16, bf16 or fp32" : ": expected fp32 or bf16"));
  return gpu ? gpu_calibration(precision) : cpu_calibration(precision);
}

Outcome run(const CalibrateFlags& arguments, const Output& out) {
  if (!arguments.path.empty()) check_late_file("-o", arguments.path, "");
  CalibrateRequest request = arguments.plan.empty()
                                 ? request_for_device(arguments, out)
                                 : request_for_plan(arguments);
  request.rounds = arguments.rounds;
  request.num_ranks = arguments.ranks;
  request.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const MachineInfo machine = machine_info();
  if (!device_kind(request.device).has_own_memory)
    out.note(cat(machine.cpu, ", OpenBLAS core ", machine.blas.core));
  const std::string table = calibrate(
      request, machine, [&](const std::string& what) { out.progress(what); });
  out.progress("");
  CostTable::parse(table, "the measured table");  // check that it can be read
                                                  // back
  if (arguments.path.empty() || arguments.json) out.result(table);
  if (!arguments.path.empty()) out.save(arguments.path, table, "cost table");
  return Outcome::kDone;
}

OptionRows options_of(CalibrateFlags& a) {
  return {
      option("-o,--output", a.path, "FILE", "file to write")
          .by_default("standard output"),
      device_option(a.device, "cpu or cuda").by_default("cpu"),
      option("--precision", a.precision, "TYPE",
             "precision of Muon's products: fp32 or bf16, on cuda also fp16")
          .offering({"fp32", "bf16", "fp16"})
          .by_default("what precision=auto chooses here"),
      option("--ranks", a.ranks, "COUNT",
             "cores to measure at once, as many as ranks will run")
          .between(1, 1024),
      option("--for", a.plan, "PLAN", "measure only what this plan needs"),
      option("--rounds", a.rounds, "COUNT",
             "rounds; the fastest counts, with several ranks the median")
          .between(1, 1000),
      flag("--json", a.json,
           "print the table as one JSON object, even if -o writes a file")};
}

}  // namespace

Verb add_calibrate(CLI::App& root) {
  return add_verb_of<CalibrateFlags>(
      root, {.name = "calibrate",
             .description =
                 "measure the costs of rules on this machine, for planning",
             .footer = kCalibrateExamples});
}

// `canzona doctor`: what this machine has, how fast it is, and what is wrong.
namespace {

constexpr const char* kDoctorExamples =
    R"(Examples:
  canzona doctor
  canzona doctor --json

Writes 64 MiB to the working folder, and removes them, to time its disk. Whether ranks reach each
other shows `mpirun -n 2 canzona bench collectives --ranks 2` (--device cuda for NCCL).

Exit status: 0 no problems, 1 something slows this machine down or may make runs fail.
)";

struct DoctorFlags {
  bool json = false;
};

int count_gpus() {
  return static_cast<int>(
      visible_gpus(environment_variable("CUDA_VISIBLE_DEVICES"), all_gpus())
          .size());
}

MachineReport examine_machine() {
  MachineReport report{.machine = machine_info(), .rates = measure_rates()};
  report.gpu = find_cuda_device(&report.why_no_gpu);
  report.disk = measure_disk(".");
  report.mpi = mpi_description();
  report.nccl = nccl_description();
  report.num_gpus = count_gpus();
  return report;
}

Outcome run(const DoctorFlags& flags, const Output& out) {
  out.progress("measuring the machine");
  const MachineReport report = examine_machine();
  out.progress("");
  out.result(machine_view(report), flags.json);
  return problems_of(report).empty() ? Outcome::kDone : Outcome::kFailed;
}

OptionRows options_of(DoctorFlags& a) { return {json_flag(a.json)}; }

}  // namespace

Verb add_doctor(CLI::App& root) {
  return add_verb_of<DoctorFlags>(
      root, {.name = "doctor",
             .description = "check this machine: CPU, BLAS, GPU, rates, disk",
             .footer = kDoctorExamples});
}

}  // namespace canzona::cli

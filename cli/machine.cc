// The verbs about this machine.
#include <fmt/chrono.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "canzona/base/device_kind.h"
#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/nccl/nccl_launch.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/tcp/sockets.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/calibrate.h"
#include "canzona/plan/cost/cost_table.h"
#include "canzona/report/bench/machine_report.h"
#include "canzona/rules/facts.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/ranks.h"
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
  return calibration_for(file.plan);
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

Writes 64 MiB to the working folder, and removes them, to time its disk; lets two ranks exchange
a few bytes, as threads and, with MPI, as processes. With NCCL and a GPU, runs a sum on a single
rank, to see which network NCCL uses, and lets two processes exchange a few bytes, on the same GPU
if there is only one.

Exit status: 0 no problems, 1 something slows this machine down or may make runs fail.
)";

constexpr int kExchangingRanks = 2;

struct DoctorFlags {
  bool json = false;
  // Set in a process started by exchange_of(): "mpi", "nccl", or "alone" for
  // NCCL with a single rank.
  std::string exchange;
};

int count_gpus() {
  return static_cast<int>(
      visible_gpus(environment_variable("CUDA_VISIBLE_DEVICES"), all_gpus())
          .size());
}

constexpr std::chrono::seconds kNcclTime{60};

// Runs one rank of a tiny exchange; the first one prints its seconds.
Outcome exchange_here(const std::string& kind, const Output& out) {
  if (kind == "alone") {
    const auto lane = lanes_of("cuda")();
    out.result(cat(nccl_alone_seconds(load_nccl(), *lane, kNcclTime), "\n"));
    return Outcome::kDone;
  }
  const bool nccl = kind == "nccl";
  const auto ranks = make_ranks(
      {.transport = kind,
       .device = nccl ? "cuda" : "cpu",
       .share_gpu = nccl && count_gpus() < kExchangingRanks,
       .num_ranks = kExchangingRanks,
       .communicator = {.deadline =
                            nccl ? kNcclTime : std::chrono::seconds(10)}});
  const ExchangeInfo info = measure_exchange(
      kind, ranks->runner(), kExchangingRanks, lanes_of(nccl ? "cuda" : "cpu"));
  if (!info.problem.empty()) throw PeerLost(info.problem);
  if (ranks->speaks()) out.result(cat(info.seconds, "\n"));
  ranks->finish();
  return Outcome::kDone;
}

// Reads what processes of this program print: the seconds of an exchange on a
// line of their own, or an error.
void read_exchange(std::FILE* lines, ExchangeInfo& info) {
  std::array<char, 4096> buffer{};
  std::string last, error;
  while (std::fgets(buffer.data(), buffer.size(), lines) != nullptr) {
    std::string line(buffer.data());
    if (line.ends_with('\n')) line.pop_back();
    if (line.empty()) continue;
    const char* end = line.data() + line.size();
    if (double seconds = 0;
        std::from_chars(line.data(), end, seconds).ptr == end)
      info.seconds = seconds;
    if (error.empty() && line.starts_with("error: ")) error = line;
    last = line;
  }
  info.problem = !error.empty()  ? error
                 : !last.empty() ? last
                                 : "its processes ended without a word";
}

// Runs a command of the shell, whose processes are ranks of the exchange.
ExchangeInfo exchange_of(const std::string& command, ExchangeInfo info) {
  std::FILE* lines =
      ::popen(cat("{ ", command, "; } </dev/null 2>&1").c_str(), "re");
  if (lines == nullptr) {
    info.problem = std::generic_category().message(errno);
    return info;
  }
  read_exchange(lines, info);
  if (::pclose(lines) == 0) info.problem.clear();
  return info;
}

// Returns the text as one word of a shell's command.
std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

// Returns the command of one rank.
std::string rank_command(const std::string& kind) {
  return cat(
      shell_word(std::filesystem::read_symlink("/proc/self/exe").string()),
      " doctor --quiet --exchange ", kind);
}

ExchangeInfo exchange_over_mpi() {
  const bool open_mpi = mpi_description().starts_with("Open MPI");
  const char* mpirun =
      open_mpi ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "$(command -v mpirun.openmpi || echo mpirun) --oversubscribe "
                 "--bind-to none"
               : "$(command -v mpirun.mpich || echo mpirun)";
  return exchange_of(
      cat(mpirun, " -n ", kExchangingRanks, " ", rank_command("mpi")),
      {.transport = "mpi", .num_ranks = kExchangingRanks});
}

// The ranks meet over sockets of this machine, at a port that is free now.
ExchangeInfo exchange_over_nccl() {
  const int port = own_endpoint(listen_on({"127.0.0.1", 0})).port;
  std::string command = cat("export CANZONA_NUM_RANKS=", kExchangingRanks,
                            " CANZONA_NUM_LOCAL=", kExchangingRanks,
                            " CANZONA_RENDEZVOUS=127.0.0.1:", port, "; ");
  for (int rank = 1; rank < kExchangingRanks; ++rank)
    command += cat("CANZONA_RANK=", rank, " ", rank_command("nccl"), " & ");
  return exchange_of(cat(command, "CANZONA_RANK=0 ", rank_command("nccl")),
                     {.transport = "nccl", .num_ranks = kExchangingRanks});
}

// Runs NCCL with a single rank, which writes its log to a file.
ExchangeInfo exchange_of_one(std::string& network) {
  const std::string file =
      std::filesystem::temp_directory_path() /
      cat("canzona-doctor-nccl-", static_cast<int64_t>(::getpid()));
  const ExchangeInfo info =
      exchange_of(cat("NCCL_DEBUG=INFO NCCL_DEBUG_FILE=", shell_word(file), " ",
                      rank_command("alone")),
                  {.transport = "nccl", .num_ranks = 1});
  std::ifstream log(file);
  network = nccl_network(std::string(std::istreambuf_iterator<char>(log), {}));
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  return info;
}

// Adds exchanges between processes if there is MPI, or NCCL and a GPU; nothing
// if a launcher has started this process.
void add_processes(MachineReport& report) {
  if (find_process_launch()) return;
  if (mpi_is_built()) report.exchanges.push_back(exchange_over_mpi());
  if (!nccl_is_built() || !report.gpu) return;
  report.exchanges.push_back(exchange_of_one(report.nccl_network));
  if (!report.exchanges.back().problem.empty()) return;
  report.exchanges.push_back(exchange_over_nccl());
}

MachineReport examine_machine() {
  MachineReport report{.machine = machine_info(), .rates = measure_rates()};
  report.gpu = find_cuda_device(&report.why_no_gpu);
  report.disk = measure_disk(".");
  report.limits = process_limits();
  report.sigpipe = sigpipe_state();
  report.mpi = mpi_description();
  report.nccl = nccl_description();
  report.num_gpus = count_gpus();
  report.gpus = cuda_peers();
  report.exchanges = {measure_exchange(
      "thread", on_threads(kExchangingRanks, {}), kExchangingRanks)};
  add_processes(report);
  return report;
}

Outcome run(const DoctorFlags& flags, const Output& out) {
  if (!flags.exchange.empty()) return exchange_here(flags.exchange, out);
  out.progress("measuring the machine");
  const MachineReport report = examine_machine();
  out.progress("");
  out.result(machine_view(report), flags.json);
  return problems_of(report).empty() ? Outcome::kDone : Outcome::kFailed;
}

OptionRows options_of(DoctorFlags& a) {
  return {json_flag(a.json), option("--exchange", a.exchange, "",
                                    "internal: one rank of a tiny exchange")
                                 .hidden()};
}

}  // namespace

Verb add_doctor(CLI::App& root) {
  return add_verb_of<DoctorFlags>(
      root, {.name = "doctor",
             .description =
                 "check this machine: CPU, BLAS, rates, disk, limits, ranks",
             .footer = kDoctorExamples});
}

}  // namespace canzona::cli

// `canzona calibrate`: the cost table of this machine.
#include "canzona/measure/calibrate.h"

#include <fmt/chrono.h>

#include <ctime>
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost_table.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kExamples =
    R"(Examples:
  canzona calibrate -o cost.json
  canzona calibrate --precision bf16 -o cost.json
  canzona calibrate --device cuda -o h200.json
  canzona plan --model qwen3-0.6b --mesh dp=4 --cost cost.json --rule-option device=cpu

Takes about a minute. One core is measured, or a GPU with batches of matrices;
docs/cost_table.md tells what is in the file.
)";

struct Arguments {
  std::string path;
  std::string device = "cpu";
  std::string precision;
  int rounds = 3;
};

CalibrateRequest request_of(const Arguments& a) {
  if (a.device != "cpu" && a.device != "cuda")
    throw UsageError(cat("--device ", quoted(a.device),
                         ": expected cpu or cuda",
                         did_you_mean(a.device, {"cpu", "cuda"})));
  const bool gpu = a.device == "cuda";
  CalibrateRequest request = gpu ? gpu_calibration() : CalibrateRequest{};
  if (a.precision.empty()) return request;
  const bool known = a.precision == "fp32" || a.precision == "bf16" ||
                     (gpu && a.precision == "fp16");
  if (!known)
    throw UsageError(
        cat("--precision ", quoted(a.precision),
            gpu ? ": expected fp16, bf16 or fp32" : ": expected fp32 or bf16"));
  request.precision = a.precision;
  return request;
}

Outcome run(const Arguments& arguments, const Output& out) {
  CalibrateRequest request = request_of(arguments);
  if (arguments.rounds < 1 || arguments.rounds > 1000)
    throw UsageError(
        cat("--rounds ", arguments.rounds, ": expected 1 to 1000"));
  request.rounds = arguments.rounds;
  request.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const MachineInfo machine = machine_info();
  if (request.device == "cpu")
    out.note(cat(machine.cpu, ", OpenBLAS core ", machine.blas.core));
  const std::string table = calibrate(
      request, machine, [&](const std::string& what) { out.progress(what); });
  out.progress("");
  CostTable::parse(table, "the measured table");  // what is saved can be read
  if (arguments.path.empty())
    out.result(table);
  else
    out.save(arguments.path, table, "cost table");
  return Outcome::kDone;
}

}  // namespace

Verb add_calibrate(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "calibrate", "measure what rules cost here, for plans that count time");
  auto a = std::make_shared<Arguments>();
  app->add_option("-o,--output", a->path, "file to write [standard output]")
      ->option_text("FILE");
  app->add_option("--device", a->device, "cpu or cuda [cpu]")
      ->option_text("DEVICE");
  app->add_option("--precision", a->precision,
                  "of Muon's products: fp32 or bf16 [fp32], on cuda also fp16 "
                  "[fp16]")
      ->option_text("TYPE");
  app->add_option("--rounds", a->rounds, "of which the quickest counts [3]")
      ->option_text("COUNT");
  app->footer(kExamples);
  return {app, [a](const Output& out) { return run(*a, out); }};
}

}  // namespace canzona::cli

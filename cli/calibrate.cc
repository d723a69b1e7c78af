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
  canzona plan --model qwen3-0.6b --mesh dp=4 --cost cost.json --rule-option device=cpu

Takes about a minute. One core is measured; docs/cost_table.md tells what is in
the file.
)";

struct Arguments {
  std::string path;
  std::string precision = "fp32";
  int rounds = 3;
};

Outcome run(const Arguments& arguments, const Output& out) {
  if (arguments.precision != "fp32" && arguments.precision != "bf16")
    throw UsageError(cat("--precision ", quoted(arguments.precision),
                         ": expected fp32 or bf16"));
  if (arguments.rounds < 1 || arguments.rounds > 1000)
    throw UsageError(
        cat("--rounds ", arguments.rounds, ": expected 1 to 1000"));
  CalibrateRequest request;
  request.precision = arguments.precision;
  request.rounds = arguments.rounds;
  request.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const MachineInfo machine = machine_info();
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
  app->add_option("--precision", a->precision,
                  "of Muon's products: fp32 or bf16 [fp32]")
      ->option_text("TYPE");
  app->add_option("--rounds", a->rounds, "of which the quickest counts [3]")
      ->option_text("COUNT");
  app->footer(kExamples);
  return {app, [a](const Output& out) { return run(*a, out); }};
}

}  // namespace canzona::cli

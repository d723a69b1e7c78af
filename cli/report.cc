// `canzona report`: what training runs left, on the terminal and as a page.
#include <memory>

#include "canzona/report/runs/run_report.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kReportExamples =
    R"(A run is a folder that `canzona train --run DIR` wrote: metrics.jsonl has a line per step,
summary.json what the run was. One that is still going on is shown as far as it got.

Several runs are compared: how many steps, tokens and seconds each took until its evaluation loss
was that of the baseline at its end, which weights are equal bit by bit, and in what the
configurations differ.

Examples:
  canzona report runs/muon
  canzona report runs/muon --html report.html
  canzona report runs/adamw runs/muon runs/soap --html compare.html
  canzona report runs/muon runs/adamw --baseline adamw --json
)";

struct ReportFlags {
  std::vector<std::string> folders;
  std::string baseline;
  std::string html;
  bool json = false;
};

Outcome run(const ReportFlags& a, const Output& out) {
  const std::vector<TrainingRun> runs = read_runs(a.folders);
  const size_t baseline = baseline_of(runs, a.baseline);
  if (!a.html.empty()) out.save(a.html, run_report({runs, baseline}), "report");
  const ComparedRuns all = compare_runs(runs, baseline);
  out.result(a.json ? runs_json(all) : runs_text(all, out.ink()));
  return Outcome::kDone;
}

}  // namespace

Verb add_report(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "report", "show what training runs did, and compare them");
  auto arguments = std::make_shared<ReportFlags>();
  app->add_option("RUN", arguments->folders, "folders of runs")->required();
  app->add_option("--baseline", arguments->baseline,
                  "the run that others are measured against [the first]")
      ->option_text("RUN");
  app->add_option("--html", arguments->html,
                  "write a page with curves, times and configurations")
      ->option_text("FILE");
  app->add_flag("--json", arguments->json,
                "print one JSON object instead of text");
  app->footer(kReportExamples);
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli

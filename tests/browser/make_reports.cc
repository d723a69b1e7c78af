// make_reports <folder>
//
// Writes the reports that the browser test opens. Plans are made by hand, so
// that the test of the page fails for the page alone.

#include <exception>
#include <iostream>
#include <string>

#include "canzona/base/files.h"
#include "canzona/report/html_report.h"
#include "canzona/report/html_sample.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/report/runs/test_runs.h"

namespace canzona {
namespace {

void write_reports(const std::string& folder) {
  const auto write = [&](const char* name,
                         const std::vector<ReportPlan>& plans) {
    write_file(folder + "/" + name, html_report(plans));
  };
  write("small.html", {make_sample({})});
  write("hostile.html", compare_sample({.first_name = "</script><img src=x "
                                                      "onerror=alert(1)>"}));
  write("large.html",
        compare_sample(
            {.mesh = {.dp = 128, .tp = 8}, .layers = 94, .experts = 128}));
  write("one_rank.html", {make_sample({.mesh = {}})});
  write("no_matrices.html", {make_sample({.matrices = false})});
}

void write_runs(const std::string& folder) {
  const auto write = [&](const char* name,
                         const std::vector<TrainingRun>& runs) {
    write_file(folder + "/" + name, run_report({runs, 0}));
  };
  const TrainingRun adamw = make_run({.name = "adamw", .floor = 2});
  write("run.html", {make_run({})});
  write("runs.html", {adamw, make_run({})});
  write("hostile_run.html",
        {make_run({.name = "</script><img src=x onerror=alert(1)>"}), adamw});
}

}  // namespace
}  // namespace canzona

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_reports <folder>\n";
    return 2;
  }
  try {
    canzona::write_reports(argv[1]);
    canzona::write_runs(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "make_reports: " << error.what() << "\n";
    return 1;
  }
}

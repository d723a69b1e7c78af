// make_reports <folder>
//
// Writes the reports that the browser test opens. Plans are made by hand, so
// that the test of the page fails for the page alone.

#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/report/compare_zero.h"
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

// Many sizes, some with long names.
ZeroComparison zero_sample(bool experts) {
  ZeroComparison all;
  all.model = "by hand, with a name that is longer than a narrow screen";
  all.mesh = {.dp = 16, .ep = experts ? 8 : 1};
  all.rule = "muon";
  all.ranks_per_node = 8;
  all.memory_cap_bytes = int64_t{40} << 30;
  all.verdict = "hier:8: the fastest of 3 that fit under 40.0 GiB";
  for (const ZeroSizes& sizes : all_zero_sizes(all.mesh.homes())) {
    ComparedZero row{.sizes = sizes, .planned = true};
    if (experts) row.experts = {16, 4, 2};
    row.strategy = experts ? "start_offset" : "";
    row.memory.parameters = Bytes((int64_t{120} << 30) / sizes.z3);
    row.memory.gradients = Bytes((int64_t{60} << 30) / sizes.z2);
    row.memory.states = Bytes((int64_t{240} << 30) / sizes.z1);
    row.fits = all.total(row) <= all.memory_cap_bytes;
    row.fast_bytes = int64_t{sizes.z3} << 30;
    row.slow_bytes = int64_t{sizes.z1} << 29;
    row.seconds = 1.5;
    row.step_seconds = 0.125;
    row.reason = row.fits ? "fits" : "over the cap";
    all.rows.push_back(row);
  }
  std::ranges::stable_sort(all.rows, std::greater{}, &ComparedZero::fits);
  return all;
}

void write_zero(const std::string& folder) {
  write_file(folder + "/zero.html", zero_comparison_html(zero_sample(false)));
  write_file(folder + "/zero_experts.html",
             zero_comparison_html(zero_sample(true)));
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
    canzona::write_zero(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "make_reports: " << error.what() << "\n";
    return 1;
  }
}

// Views of runs, and the page that draws them.
//
//   const ComparedRuns all = compare_runs(runs, 0);
//   std::string text = print_text(runs_view(all), ink);
//   write_file("report.html", run_report(all));
//
// The same runs give the same bytes. Pure; any thread may call.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "canzona/report/document.h"
#include "canzona/report/runs/run.h"

namespace canzona::report {

// docs/runs.md describes the members. The runs must outlive the document.
Document runs_view(const ComparedRuns& all);

// Returns a page that draws them: the loss curves, where time and memory
// went, the settings and the machine; several runs side by side.
std::string run_report(const ComparedRuns& all);

// Returns a curve of `width` characters, scaled from the lowest value to the
// highest.
std::string sparkline(std::span<const double> values, size_t width);

// "2.3456"; "–" where it is not known.
std::string loss_text(double loss);
// "0.71 ×".
std::string times_text(double ratio);
// Says why evaluation losses cannot be compared; "" if they can.
std::string evaluations_remark(const std::vector<TrainingRun>& runs);
// "7 of 8 steps were skipped …, in step 8 the gradient of …"; "" if none was.
std::string skipped_remark(const TrainingRun& run);

}  // namespace canzona::report

// Views of runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "canzona/report/runs/run.h"
#include "canzona/report/terminal.h"

namespace canzona {

// Runs on the terminal and as JSON.
//
//   std::string text = runs_text(compare_runs(runs, 0), ink);
//   std::string json = runs_json(compare_runs(runs, 0));

std::string runs_text(const ComparedRuns& all, const Ink& ink);

// One object; its members are described in docs/runs.md.
std::string runs_json(const ComparedRuns& all);

// A curve of `width` characters, from the lowest value to the highest.
std::string sparkline(std::span<const double> values, size_t width);

// Training runs as one HTML file: how the loss fell, what the time and the
// memory went to, what was asked and where it ran; several runs side by side.
//
//   write_file("report.html", run_report({runs, 0}));
//
// The file opens from disk and asks the network for nothing; names from files
// are escaped. The same runs give the same bytes. Pure; any thread may call.

struct RunView {
  const std::vector<TrainingRun>& runs;
  size_t baseline = 0;

  bool several() const { return runs.size() > 1; }
  const TrainingRun& base() const { return runs[baseline]; }
  const TrainingRun& first() const { return runs.front(); }
};

// UsageError without a run.
std::string run_report(const RunView& view);

}  // namespace canzona

// Training runs as one HTML file: how the loss fell, what the time and the
// memory went to, what was asked and where it ran; several runs side by side.
//
//   write_file("report.html", run_report({runs, 0}));
//
// The file opens from disk and asks the network for nothing; names from files
// are escaped. The same runs give the same bytes. Pure; any thread may call.
#pragma once

#include <string>
#include <vector>

#include "canzona/report/runs/run.h"

namespace canzona {

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

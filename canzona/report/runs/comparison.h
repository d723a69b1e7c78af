// How runs did against one of them.
//
//   ComparedRuns all = compare_runs(runs, baseline_of(runs, "adamw"));
//
// Of every run: what it needed until its evaluation loss was at most the
// baseline's last one. Only losses that were measured count: nothing is read
// off between two evaluations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/report/runs/run.h"

namespace canzona {

// What a run needed, and as a multiple of what the baseline needed (0: not
// known).
struct Reached {
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
  double steps_ratio = 0;
  double tokens_ratio = 0;
  double seconds_ratio = 0;
};

struct ComparedRuns {
  const std::vector<TrainingRun>& runs;
  size_t baseline = 0;
  double target = 0;  // the baseline's last evaluation loss; NaN: none
  std::vector<std::optional<Reached>> reached;  // per run
  // Runs of equal parameters have the same letter; "" without a digest.
  std::vector<std::string> letters;
};

ComparedRuns compare_runs(const std::vector<TrainingRun>& runs,
                          size_t baseline);

}  // namespace canzona

// Training runs as values: reads them from their folders, compares and
// describes them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "canzona/trace/run_summary.h"

namespace canzona::report {

// A training run as it is stored in its folder.
//
//   std::vector<TrainingRun> runs = read_runs({"runs/muon", "runs/adamw"});
//
// Folders are untrusted: sizes are bounded, and UsageError names the file and
// what is wrong. A run whose summary says "running", or that has none, is still
// running or was killed: it is read as far as it got.
struct TrainingRun {
  std::string name;    // distinguishes it from the other runs
  std::string folder;  // as given
  std::vector<StepMetrics> steps;
  std::optional<RunSummary> summary;

  bool has_ended() const { return summary && summary->has_ended(); }
  // "finished", "stopped", "diverged", or "" for a run that did not end.
  std::string state() const { return has_ended() ? summary->state : ""; }
  // Says briefly how the run differs from a finished one; "" if it finished.
  std::string remark() const;
  int64_t skipped_steps() const;
  double mfu() const;  // NaN: not known
  // The number in the summary, or else that of the last step read.
  int64_t num_steps() const;
  int64_t tokens() const;
  double seconds() const;
  double final_loss() const;  // NaN: not known
  double eval_loss() const;   // the last one; NaN: never measured
  std::string digest() const;
  double tokens_per_second() const;  // over the whole run; 0: not known
  int64_t memory_bytes() const;      // reserved by the fullest rank
};

inline constexpr size_t kMaxRuns = 24;

// Throws UsageError if a folder holds no run, or there are more than kMaxRuns.
std::vector<TrainingRun> read_runs(const std::vector<std::string>& folders);

// Returns the first step after which the evaluation loss was at most `loss`;
// nullptr if there is none.
const StepMetrics* first_below(const TrainingRun& run, double loss);

// Returns the run that others are compared with: the one of this name or
// folder, or the first. If the name is unknown, UsageError lists the runs.
size_t baseline_of(const std::vector<TrainingRun>& runs,
                   const std::string& wanted);

// Compares runs with one of them.
//
//   ComparedRuns all = compare_runs(runs, baseline_of(runs, "adamw"));
//
// Finds what every run needed until its evaluation loss was at most the
// baseline's last one. Only measured losses count: nothing is interpolated
// between two evaluations.

// The cost of a run up to that point, also as a multiple of the baseline's (0:
// not known).
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
  // Runs with equal parameters have the same letter; "" without a digest.
  std::vector<std::string> letters;
};

// Throws UsageError without a run.
ComparedRuns compare_runs(const std::vector<TrainingRun>& runs,
                          size_t baseline);

// The settings of runs and the machines they ran on, as names and values.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Returns the configuration with nested names joined: {"rule.name", "muon"}; at
// most 2000 entries.
Facts configuration_of(const TrainingRun& run);
Facts environment_of(const TrainingRun& run);

// One row per name, one value per run ("" where a run has none).
struct FactRow {
  std::string name;
  std::vector<std::string> values;
  bool differs = false;
};
std::vector<FactRow> side_by_side(const std::vector<Facts>& facts);

// The series of a run's steps as they are drawn: smoothed and thinned points.
//
//   Points raw = points_of(run, loss_of);
//   Points line = smoothed(raw);

// A value, and its position on each of the axes over which it is drawn.
struct Point {
  double steps = 0;
  double tokens = 0;
  double seconds = 0;
  double value = 0;
};
using Points = std::vector<Point>;

// Steps whose figure is not finite, or above 1e100, are left out.
using Figure = double (*)(const StepMetrics&);
Points points_of(const TrainingRun& run, Figure figure);

double loss_of(const StepMetrics& step);
double eval_loss_of(const StepMetrics& step);  // NaN if not measured

// Fits a line to the neighbours of every point, a fortieth of all points on
// either side. That removes noise without the lag of a running mean. The result
// stays within the range of those neighbours.
Points smoothed(const Points& points);

// Return at most `most` points: the lowest and the highest of each run of
// points, so that no peak is lost, or the mean of each run.
Points thinned_peaks(const Points& points, size_t most);
Points thinned_mean(const Points& points, size_t most);

}  // namespace canzona::report

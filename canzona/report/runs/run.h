// Training runs as values: read from their folders, compared, described.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "canzona/trace/run_summary.h"

namespace canzona {

// A training run as it lies in its folder.
//
//   std::vector<TrainingRun> runs = read_runs({"runs/muon", "runs/adamw"});
//
// Folders are untrusted: sizes are bounded, UsageError names the file and what
// is wrong. A run whose summary says "running", or that has none, is going on
// or was killed: it is read as far as it got.

struct TrainingRun {
  std::string name;    // what tells it from the others
  std::string folder;  // as it was given
  std::vector<StepMetrics> steps;
  std::optional<RunSummary> summary;

  bool has_ended() const { return summary && summary->has_ended(); }
  // "finished", "stopped", "diverged", or "" for a run that did not end.
  std::string state() const { return has_ended() ? summary->state : ""; }
  // Says in a few words why a run is not like others; "" for one that finished.
  std::string remark() const;
  int64_t skipped_steps() const;
  double mfu() const;  // NaN: not known
  // The number that the summary says, or as far as the steps tell.
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

// UsageError if a folder holds no run, or there are more than kMaxRuns.
std::vector<TrainingRun> read_runs(const std::vector<std::string>& folders);

// The first step after which the evaluation loss was at most `loss`; nullptr if
// it never was.
const StepMetrics* first_below(const TrainingRun& run, double loss);

// The run that others are measured against: the one of this name or folder, or
// the first. UsageError names the runs there are.
size_t baseline_of(const std::vector<TrainingRun>& runs,
                   const std::string& wanted);

// Compares runs with one of them.
//
//   ComparedRuns all = compare_runs(runs, baseline_of(runs, "adamw"));
//
// Finds what every run needed until its evaluation loss was at most the
// baseline's last one. Only losses that were measured count: nothing is read
// off between two evaluations.

// The cost of a run until then, and as a multiple of the baseline's (0: not
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

// UsageError without a run.
ComparedRuns compare_runs(const std::vector<TrainingRun>& runs,
                          size_t baseline);

// The settings of runs and where they ran, as lists of names and values.

using Facts = std::vector<std::pair<std::string, std::string>>;

// The configuration with nested names joined: {"rule.name", "muon"}. At most
// 2000 of them.
Facts configuration_of(const TrainingRun& run);
Facts environment_of(const TrainingRun& run);

// One row per name, one value per run ("" where a run has none).
struct FactRow {
  std::string name;
  std::vector<std::string> values;
  bool differs = false;
};
std::vector<FactRow> side_by_side(const std::vector<Facts>& facts);

// The series of a run's steps as they are drawn: points, smoothed, and few
// enough.
//
//   Points raw = points_of(run, loss_of);
//   Points line = smoothed(raw);

// A value, and where it lies on each of the axes over which it is drawn.
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
double eval_loss_of(const StepMetrics& step);  // NaN where it was not measured

// At every point the line that fits its neighbours best, a fortieth of all to
// either side: noise goes, and what falls is not shown too late, as by a
// running mean. Never above or below all of those neighbours.
Points smoothed(const Points& points);

// At most `most` points: of each run of them the lowest and the highest, so
// that no peak is lost; or their mean.
Points thinned_peaks(const Points& points, size_t most);
Points thinned_mean(const Points& points, size_t most);

}  // namespace canzona

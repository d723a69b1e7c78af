// Writes a run's scalars for TensorBoard: a file of records, each an event of a
// step.
//
//   TensorBoardWriter board(next_events_path(folder, seconds, "host"),
//   seconds); board.add(step, seconds_since_1970, scalars_of(metrics));
//
//   $ tensorboard --logdir FOLDER
//
// Every event is flushed at once, so that a run can be watched. One thread at a
// time.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/trace/run_summary.h"

namespace canzona::trace {

struct Scalar {
  std::string tag;  // "loss/train"; TensorBoard groups by what precedes the '/'
  double value = 0;
};

// Returns the scalars of a step, with the evaluation loss if it was measured.
std::vector<Scalar> scalars_of(const StepMetrics& metrics);
// Returns the scalars of an evaluation that finishes after its step was
// written.
std::vector<Scalar> evaluation_scalars(double eval_loss);

// FOLDER/events.out.tfevents.<seconds>.<host>, the name TensorBoard looks for.
std::string events_path(const std::string& folder, int64_t seconds_since_1970,
                        std::string_view host);

// The same with the next later second after which it sorts behind all event
// files in the folder: TensorBoard reads them in the order of their names.
std::string next_events_path(const std::string& folder,
                             int64_t seconds_since_1970, std::string_view host);

class TensorBoardWriter {
 public:
  // Truncates the file. What earlier files of the folder tell of `first_step`
  // and later steps is superseded. Here and in add(), throws UsageError if the
  // file cannot be opened, StorageError if it cannot be written.
  explicit TensorBoardWriter(const std::string& path, double wall_time = 0,
                             int64_t first_step = 0);

  // `wall_time` is in seconds since 1970, with fractions; TensorBoard orders by
  // it.
  void add(int64_t step, double wall_time, const std::vector<Scalar>& scalars);

 private:
  void write_start(int64_t first_step, double wall_time);
  void write_record(std::string_view event);

  std::string path_;
  std::ofstream file_;
};

}  // namespace canzona::trace

// What a run leaves in its folder: metrics while it goes on, weights, summary
// and report at its end. docs/runs.md lists the files.
//
//   RunFolder folder("runs/one", overwrite);
//   folder.add_step(metrics);
//   folder.begin_weights(job) … folder.add_tensor(t, whole) …
//   folder.finish(summary);
//
// One thread at a time.
#pragma once

#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "canzona/checkpoint/hf_weights.h"
#include "canzona/trace/run_summary.h"
#include "canzona/trace/step_metrics.h"
#include "canzona/trace/tensorboard.h"
#include "cli/train_job.h"

namespace canzona::cli {

class RunFolder {
 public:
  // Makes the folder. UsageError if it holds anything and may not be
  // overwritten; else only files of a former run are removed.
  RunFolder(const std::string& path, bool overwrite);

  const std::string& path() const { return path_; }
  std::string report_path() const { return path_ + "/report.html"; }

  void add_step(const StepMetrics& metrics);
  // Tensors in the model's order; the job outlives this.
  void add_tensor(const TrainJob& job, int32_t tensor,
                  std::span<const float> whole);
  // Weights, summary and report.
  void finish(const TrainJob& job, const RunSummary& summary);

 private:
  std::string path_;
  std::ofstream metrics_;
  std::unique_ptr<TensorBoardWriter> board_;
  std::unique_ptr<WeightFile> weights_;
};

}  // namespace canzona::cli

// A RunFolder writes what a run leaves: a summary of what is running when it
// begins, metrics while it goes on, weights as soon as they are whole, summary
// and report at its end. docs/runs.md lists the files.
//
//   RunFolder folder("runs/one", FolderUse::kNew);
//   folder.write_summary(summary);
//   folder.add_step(metrics) …
//   folder.add_tensor(job, t, whole) … folder.finish_weights(job);
//   folder.finish(summary);
//
// The folder is locked while this lives. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/checkpoint/hf_weights.h"
#include "canzona/checkpoint/new_folder.h"
#include "canzona/trace/run_summary.h"
#include "canzona/trace/step_metrics.h"
#include "canzona/trace/tensorboard.h"
#include "cli/former_run.h"
#include "cli/train_job.h"

namespace canzona::cli {

// A file of lines that has whole ones only, also where the disk is full. One
// thread at a time.
class LineFile {
 public:
  // UsageError or StorageError if it cannot be opened. `keep`: what is there
  // stays.
  LineFile(const std::string& path, bool keep);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // In one write. `over`: so many bytes of the last line, the newline among
  // them, are replaced. StorageError says why it could not be: the file is then
  // as it was.
  void add(std::string_view text, int64_t over = 0);

 private:
  std::string path_;
  int fd_;
  int64_t size_ = 0;
};

class RunFolder {
 public:
  // Makes the folder, which is removed with this if nothing was written to it.
  // UsageError if a run that is going on writes to it, or if it holds anything
  // that its use forbids. Nothing of a former run is changed before
  // go_on_after() or replace_former().
  RunFolder(const std::string& path, FolderUse use);

  // True until replace_former() where a former run is there and is not to go
  // on; nothing can be written before.
  bool holds_former() const { return holds_former_; }
  // Removes the former run, if there is one: when all that the new one begins
  // with is there. StorageError, and nothing is changed, if there will not be
  // room for so many bytes of checkpoints.
  void replace_former(int64_t bytes_to_save);

  // For a run that goes on: checkpoints of later steps are set aside, and what
  // metrics.jsonl tells of such steps is removed. Nothing is changed if the
  // files of the run cannot be written. Returns notes for the user.
  std::vector<std::string> go_on_after(int64_t step);
  // True if the step that the run goes on from was recorded without an
  // evaluation, and none was added since.
  bool lacks_evaluation() const { return has_step_ && !has_begun_; }
  // For a run that was refused before its first step: nothing of it stays, so
  // that it can be asked for again.
  void forget_unless_begun();

  const std::string& path() const { return path_; }
  std::string report_path() const { return path_ + "/report.html"; }

  void write_summary(const RunSummary& summary) const;
  // Writes what the run's text was encoded with, for those who read its
  // weights; nothing if the text is empty. One that is there stays.
  void write_tokenizer(std::string_view json) const;
  // StorageError says why a step, or an evaluation, could not be recorded: the
  // files are then as they were, and the next one can be added.
  void add_step(const StepMetrics& metrics);
  // Adds an evaluation of the step that was added last; none: only the summary
  // tells of it.
  void add_evaluation(int64_t step, double loss);
  // Tensors in the model's order; the job outlives this.
  void add_tensor(const TrainJob& job, int32_t tensor,
                  std::span<const float> whole);
  // On disk, under their name, with config.json where there is one.
  void finish_weights(const TrainJob& job);
  // SHA-256 of the file of weights; "" until it is there.
  const std::string& weights_sha256() const { return weights_sha256_; }
  // Summary and report.
  void finish(const RunSummary& summary);

 private:
  void open_records(bool keep);
  void open_board();
  void add_scalars(int64_t step, const std::vector<Scalar>& scalars);

  std::string path_;
  FolderUse use_;
  MissingFolders made_;  // before the lock, which lies in the last of them
  FileLock lock_;
  bool holds_former_ = false;
  std::optional<LineFile> metrics_;
  bool has_step_ = false;   // the last line lacks an evaluation
  bool has_begun_ = false;  // a step was done
  std::string board_path_;
  std::unique_ptr<TensorBoardWriter> board_;  // null: it could not be written
  std::unique_ptr<WeightFiles> weights_;
  std::string weights_sha256_;
};

// UsageError if a file that is written at the end, beside the run's or in its
// folder, could not be: before anything of a former run is touched.
// `flag`: what has named the file. "": the run has no folder.
void check_late_file(const std::string& flag, const std::string& file,
                     const std::string& run_folder);

// Says why weights of this job have no config.json; "" if they have one.
std::string config_json_note(const TrainJob& job);

}  // namespace canzona::cli

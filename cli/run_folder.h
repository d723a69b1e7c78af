// A RunFolder writes the files of a run: a first summary when it begins,
// metrics while it runs, weights as soon as they are complete, summary and
// report at its end. docs/runs.md lists the files.
//
//   RunFolder folder("runs/one", FolderUse::kNew);
//   folder.write_summary(summary);
//   folder.add_step(metrics) …
//   folder.add_tensor(job, t, whole) … folder.finish_weights(job);
//   folder.finish(summary);
//
// The folder is locked while this object lives. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/hf_folder.h"
#include "canzona/trace/run_summary.h"
#include "canzona/trace/tensorboard.h"
#include "cli/former_run.h"
#include "cli/train_job.h"

namespace canzona::cli {

// A file that has only complete lines, even if the disk is full. One thread at
// a time.
class LineFile {
 public:
  // Throws UsageError or StorageError if it cannot be opened. `keep` keeps the
  // existing contents.
  LineFile(const std::string& path, bool keep);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Appends in a single write. `over` bytes at the end of the last line,
  // including the newline, are replaced. Throws StorageError with the reason;
  // the file is then as before.
  void add(std::string_view text, int64_t over = 0);

 private:
  std::string path_;
  int fd_;
  int64_t size_ = 0;
};

class RunFolder {
 public:
  // Creates the folder, which is removed by the destructor if nothing was
  // written to it. Throws UsageError if a running run writes to it, or if it
  // contains anything that its use forbids. Nothing of a former run is changed
  // before go_on_after() or replace_former().
  RunFolder(const std::string& path, FolderUse use);

  // True until replace_former() if there is a former run that is not continued;
  // nothing can be written before.
  bool holds_former() const { return holds_former_; }
  // Removes the former run, if there is one. Call it when everything that the
  // new run begins with is available. Throws StorageError, without changing
  // anything, if there is not enough space for this many bytes of checkpoints.
  void replace_former(int64_t bytes_to_save);

  // For a resumed run: sets checkpoints of later steps aside and removes later
  // steps from metrics.jsonl. Changes nothing if the files of the run cannot be
  // written. Returns notes for the user.
  std::vector<std::string> go_on_after(int64_t step);
  // True if the step from which the run resumes was recorded without an
  // evaluation, and none was added since.
  bool lacks_evaluation() const { return has_step_ && !has_begun_; }
  // For a run that was refused before its first step: removes everything of it,
  // so that it can be started again.
  void forget_unless_begun();

  const std::string& path() const { return path_; }
  std::string report_path() const { return path_ + "/report.html"; }

  // Writes what a new run has before its first step; if that fails, nothing of
  // the run is left.
  void write_begin(std::string_view tokenizer, const RunSummary& summary);
  void write_summary(const RunSummary& summary) const;
  // Writes the run's tokenizer, for readers of its weights; nothing if the text
  // is empty. An existing one is kept.
  void write_tokenizer(std::string_view json) const;
  // Throws StorageError with the reason if a step or an evaluation could not be
  // recorded; the files are then as before, and the next one can be added.
  void add_step(const StepMetrics& metrics);
  // Adds an evaluation of the step added last; if there is none, only the
  // summary has it.
  void add_evaluation(int64_t step, double loss);
  // Tensors must come in the model's order; the job must outlive this.
  void add_tensor(const TrainJob& job, int32_t tensor,
                  std::span<const float> whole);
  // Makes the weights durable under their name, with config.json if there is
  // one.
  void finish_weights(const TrainJob& job);
  // SHA-256 of the file of weights; "" until it is written.
  const std::string& weights_sha256() const { return weights_sha256_; }
  // Writes summary and report.
  void finish(const RunSummary& summary);

 private:
  // Forgets the run if the work fails.
  template <class Work>
  void or_forget(const Work& work);
  // `step` is the last one that stays.
  void open_records(bool keep, int64_t step = -1);
  void open_board(int64_t step);
  void add_scalars(int64_t step, const std::vector<Scalar>& scalars);

  std::string path_;
  FolderUse use_;
  MissingFolders made_;  // before the lock, which is inside the last one
  FileLock lock_;
  bool holds_former_ = false;
  std::optional<LineFile> metrics_;
  bool has_step_ = false;   // the last line has no evaluation yet
  bool has_begun_ = false;  // a step was done
  std::string board_path_;
  std::unique_ptr<TensorBoardWriter> board_;  // null: it could not be written
  std::unique_ptr<WeightFiles> weights_;
  std::string weights_sha256_;
};

// Throws UsageError if the folder of a run is a file. Nothing is changed.
void require_run_folder(const std::string& path);

// Throws UsageError if a file that is written at the end, outside the run's
// folder or in it, could not be written: before a former run is touched. `flag`
// is the option that named the file. An empty `run_folder` means that the run
// has none.
void check_late_file(const std::string& flag, const std::string& file,
                     const std::string& run_folder);

// Returns why weights of this job have no config.json; "" if they have one.
std::string config_json_note(const TrainJob& job);

}  // namespace canzona::cli

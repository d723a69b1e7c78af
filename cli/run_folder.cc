#include "cli/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/store.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/train/model_source.h"
#include "cli/output.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

MissingFolders make_run_folder(const std::string& path) {
  require_run_folder(path);
  std::error_code error;
  if (fs::is_directory(path, error) && ::access(path.c_str(), W_OK) != 0)
    throw UsageError(
        cat("--run ", quoted(path), ": the folder is not writable"));
  try {
    return MissingFolders(path);
  } catch (const StorageError& failure) {
    throw StorageError(cat("--run ", quoted(path), ": ", failure.what()));
  } catch (const UsageError& failure) {
    throw UsageError(cat("--run ", quoted(path), ": ", failure.what()));
  }
}

FileLock lock_run_folder(const std::string& path) {
  const std::string file = cat(path, "/", kRunLock);
  std::optional<FileLock> lock = FileLock::take(file, folder_owner());
  if (!lock)
    throw UsageError(cat("--run ", quoted(path), " is in use by ",
                         printable(FileLock::holder(file)),
                         ", which is training there; wait for it, stop it, or "
                         "choose another folder"));
  return std::move(*lock);
}

// "checkpoints of steps 200, 300 are set aside …"; "" if there are none.
std::string leave_later_checkpoints(const std::string& run, int64_t step) {
  const std::string path = checkpoint_folder(run);
  const std::vector<ListedCheckpoint> list =
      list_checkpoints(Folder::open(path));
  if (!list.empty() && list.back().step == step && list.back().is_latest)
    return "";
  std::vector<std::string> steps;
  for (const int64_t left :
       CheckpointStore(path, folder_owner()).go_back_to(step))
    steps.push_back(cat(left));
  if (steps.empty()) return "";
  return cat(
      "the run resumes from step ", step, ": checkpoints of later steps (",
      join(steps, ", "), ") are set aside in ", printable(path),
      " as step_N.left-… until newer ones replace them (save.keep_last)");
}

// Writes all of it; returns 0 or the errno.
int write_at(int fd, int64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::pwrite(fd, text.data(), text.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    offset += count;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

constexpr std::string_view kEndOfLine = "}\n";

}  // namespace

void require_run_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    throw UsageError(cat("--run ", quoted(path),
                         ": it is a file; expected a folder, which need "
                         "not exist yet"));
}

void check_late_file(const std::string& flag, const std::string& file,
                     const std::string& run_folder) {
  if (file == "-")
    throw UsageError(cat(flag, " '-': expected the name of a file"));
  const auto folder = [](const fs::path& path) {
    return (path / "").lexically_normal();
  };
  // It is about to be created.
  const bool inside =
      !run_folder.empty() &&
      folder(fs::path(file).parent_path()) == folder(run_folder);
  if (!run_folder.empty() && folder(file) == folder(run_folder))
    throw UsageError(cat(flag, " ", quoted(file),
                         " is the folder of --run; expected a file"));
  if (inside && is_of_a_run(fs::path(file).filename().string()))
    throw UsageError(cat(flag, " ", quoted(file),
                         " is a file that the run itself writes; choose "
                         "another name"));
  if (inside && !is_there(run_folder)) return;
  try {
    check_writable(file);
  } catch (const UsageError& error) {
    throw UsageError(cat(flag, ": ", error.what()));
  }
}

std::string config_json_note(const TrainJob& job) {
  const Architecture& a = job.settings.decoder.architecture;
  if (!a.qk_norm && a.experts.count > 0)
    return "config.json is not written with model.safetensors: no known "
           "architecture has experts without norms of queries and keys "
           "(model.qk_norm)";
  if (a.experts.shared == 0) return "";
  return "config.json is not written with model.safetensors: Qwen3-MoE has no "
         "shared experts (model.shared_experts), and other architectures that "
         "have them compute them differently";
}

LineFile::LineFile(const std::string& path, bool keep) : path_(path) {
  fd_ = ::open(path.c_str(),
               O_WRONLY | O_CREAT | O_CLOEXEC | (keep ? 0 : O_TRUNC), 0666);
  if (fd_ < 0) throw_write_error(cat("cannot open ", quoted(path)), errno);
  size_ = std::max<int64_t>(0, ::lseek(fd_, 0, SEEK_END));
}

LineFile::~LineFile() { ::close(fd_); }

void LineFile::add(std::string_view text, int64_t over) {
  const int64_t at = size_ - over;
  const int code = write_at(fd_, at, text);
  if (code == 0) {
    size_ = at + std::ssize(text);
    return;
  }
  // The bytes of the old line end already have space on the disk.
  const bool is_cut = ::ftruncate(fd_, size_) == 0 &&
                      write_at(fd_, at, kEndOfLine.substr(0, over)) == 0;
  throw StorageError(
      cat(path_, " cannot be written: ", std::strerror(code),
          is_cut ? "" : ", and cannot be truncated to its last whole line"));
}

RunFolder::RunFolder(const std::string& path, FolderUse use)
    : path_(path),
      use_(use),
      made_(make_run_folder(path)),
      lock_(lock_run_folder(path)) {
  if (use == FolderUse::kGoOn) {
    require_no_folders(path);
    return;
  }
  holds_former_ = check_former(path_, use_);
  if (!holds_former_) or_forget([&] { open_records(false); });
}

template <class Work>
void RunFolder::or_forget(const Work& work) {
  try {
    work();
  } catch (const Error&) {
    forget_unless_begun();
    throw;
  }
}

void RunFolder::replace_former(int64_t bytes_to_save) {
  if (!holds_former_) return;
  check_former(path_, use_);
  const std::string folder = checkpoint_folder(path_);
  if (const int64_t room = room_without_former(folder); room < bytes_to_save)
    throw StorageError(cat("the checkpoints of this run need ",
                           human_bytes(bytes_to_save), " in ",
                           quoted(folder, 300), ", but without those of the ",
                           "run to be replaced only ", human_bytes(room),
                           " are free; nothing was changed; keep fewer "
                           "(--keep-last), or choose another disk"));
  remove_former_run(path_);
  holds_former_ = false;
  open_records(false);
}

void RunFolder::open_records(bool keep, int64_t step) {
  metrics_.emplace(path_ + "/metrics.jsonl", keep);
  open_board(step);
}

// TensorBoard takes several files in a folder as one run.
void RunFolder::open_board(int64_t step) {
  const double now = seconds_since_1970();
  board_path_ = next_events_path(path_, static_cast<int64_t>(now), host_name());
  board_ = std::make_unique<TensorBoardWriter>(board_path_, now, step + 1);
}

// TensorBoard stops reading a file at an incomplete record: it is cut off, and
// the next record begins another file.
void RunFolder::add_scalars(int64_t step, const std::vector<Scalar>& scalars) {
  uintmax_t whole = 0;
  std::error_code error;
  try {
    if (board_ == nullptr) open_board(step);
    whole = fs::file_size(board_path_, error);
    board_->add(step, seconds_since_1970(), scalars);
  } catch (const StorageError&) {
    board_.reset();
    if (whole > 0 && !error)
      fs::resize_file(board_path_, whole, error);
    else
      fs::remove(board_path_, error);
    throw;
  }
}

// Tries everything that can fail before anything changes. Checkpoints come
// before metrics: a run that is killed in between resumes from the same step.
std::vector<std::string> RunFolder::go_on_after(int64_t step) {
  if (use_ != FolderUse::kGoOn) return {};
  const std::string file = path_ + "/metrics.jsonl";
  constexpr int64_t kMostBytes = int64_t{4} << 30;
  KeptMetrics kept;
  if (is_there(file))
    kept = metrics_until(read_file(file, kMostBytes, "the metrics"), step);
  check_writable(path_ + "/summary.json");
  FileWriter metrics(file);
  metrics.write(kept.text);
  std::vector<std::string> notes;
  if (const std::string left = leave_later_checkpoints(path_, step);
      !left.empty())
    notes.push_back(left);
  metrics.finish();
  has_step_ = step > 0 && !kept.lines.empty() &&
              kept.lines.back().step == step && !kept.lines.back().is_evaluated;
  open_records(true, step);
  if (kept.left_out > 0)
    notes.push_back(cat(file, ": line ", kept.odd_line,
                        " is not a valid record; ",
                        counted_text(kept.left_out, "line"),
                        " of earlier steps left out, including this one"));
  else if (const std::string missing = missing_steps(kept, step);
           !missing.empty())
    notes.push_back(cat(file, ": ", missing, " before step ", step,
                        ", from which the run resumes"));
  return notes;
}

void RunFolder::forget_unless_begun() {
  if (use_ == FolderUse::kGoOn || has_begun_ || holds_former_) return;
  metrics_.reset();
  board_.reset();
  remove_former_files(path_);
  const fs::path store = checkpoint_folder(path_);
  std::error_code error;
  if (!fs::is_symlink(store, error) && is_empty_store(store.string()))
    fs::remove(store, error);
}

void RunFolder::write_begin(std::string_view tokenizer,
                            const RunSummary& summary) {
  or_forget([&] {
    write_tokenizer(tokenizer);
    write_summary(summary);
  });
}

void RunFolder::write_summary(const RunSummary& summary) const {
  write_file(path_ + "/summary.json", to_json(summary));
}

void RunFolder::write_tokenizer(std::string_view json) const {
  const std::string file = path_ + "/tokenizer.json";
  if (!json.empty() && !is_there(file)) write_file(file, json);
}

void RunFolder::add_step(const StepMetrics& metrics) {
  has_begun_ = true;
  has_step_ = false;
  metrics_->add(json_line(metrics) + "\n");
  has_step_ = true;
  add_scalars(metrics.step, scalars_of(metrics));
}

void RunFolder::add_evaluation(int64_t step, double loss) {
  // A single write over the last brace, so that a reader never sees less than
  // before.
  if (has_step_)
    metrics_->add(evaluation_tail(loss) + "\n", std::ssize(kEndOfLine));
  add_scalars(step, evaluation_scalars(loss));
}

void RunFolder::add_tensor(const TrainJob& job, int32_t tensor,
                           std::span<const float> whole) {
  if (weights_ == nullptr)
    weights_ = std::make_unique<WeightFiles>(path_, job.plan.model);
  weights_->add(tensor, whole);
}

void RunFolder::finish_weights(const TrainJob& job) {
  weights_->finish();
  weights_sha256_ = weights_->files().front().sha256;
  weights_.reset();
  if (config_json_note(job).empty())
    write_file(path_ + "/config.json",
               hf_config(hf_numbers_of(job.settings.decoder, job.context)));
}

void RunFolder::finish(const RunSummary& summary) {
  write_summary(summary);
  metrics_.reset();
  const std::vector<TrainingRun> runs = read_runs({path_});
  write_file(report_path(), run_report(compare_runs(runs, 0)));
}

}  // namespace canzona::cli

#include "cli/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/hf_config.h"
#include "canzona/checkpoint/store.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/train/hf_exchange.h"
#include "cli/environment.h"
#include "cli/errors.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFiles = {"metrics.jsonl", "summary.json",
                               "report.html",   "model.safetensors",
                               "config.json",   "tokenizer.json"};
constexpr std::string_view kEvents = "events.out.tfevents.";
constexpr const char* kLock = "canzona.lock";

// "model.safetensors.4711.0.tmp" of a run that was killed while it wrote.
bool is_left_behind(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  return std::ranges::any_of(kFiles, [&](std::string_view file) {
    return name.starts_with(file) &&
           std::ranges::all_of(name.substr(file.size()), [](unsigned char c) {
             return c == '.' || std::isdigit(c) != 0;
           });
  });
}

bool is_of_a_run(std::string_view name) {
  return name.starts_with(kEvents) || is_left_behind(name) ||
         std::ranges::find(kFiles, name) != kFiles.end();
}

void make_run_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error && is_storage_error(error.value()))
    throw StorageError(
        cat("--run ", quoted(path), ": cannot be made: ", error.message()));
  if (!fs::is_directory(path))
    throw UsageError(cat("--run ", quoted(path), ": cannot be made: ",
                         error ? error.message() : "it is no folder"));
  if (::access(path.c_str(), W_OK) != 0)
    throw UsageError(cat("--run ", quoted(path), ": cannot be written"));
}

FileLock lock_run_folder(const std::string& path) {
  const std::string file = cat(path, "/", kLock);
  std::optional<FileLock> lock = FileLock::take(file, folder_owner());
  if (!lock)
    throw UsageError(cat("--run ", quoted(path), " is in use by ",
                         printable(FileLock::holder(file)),
                         ", which is training into it; wait for it, end it, or "
                         "choose another folder"));
  return std::move(*lock);
}

void refuse_what_is_there(const std::string& path) {
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name == kLock) continue;
    throw UsageError(cat("--run ", quoted(path), " is not empty: it holds ",
                         quoted(name), "; choose another folder, ",
                         has_checkpoint(checkpoint_folder(path))
                             ? "go on with the run that is there (--resume "
                               "auto), or replace it (--overwrite)"
                             : "or replace the run that is there with "
                               "--overwrite"));
  }
}

// A run that was killed before its first checkpoint has nothing to lose.
void refuse_what_has_ended(const std::string& path) {
  const std::string file = path + "/summary.json";
  if (!fs::exists(file)) return refuse_what_is_there(path);
  constexpr int64_t kMostBytes = 256 << 20;
  const RunSummary summary =
      read_summary(read_file(file, kMostBytes, "the run's summary"), file);
  if (!summary.has_ended()) return;
  throw UsageError(
      cat("--resume auto: --run ", quoted(path),
          " holds a run that has come to its end (", printable(summary.state),
          " after ", summary.steps,
          " steps) and no checkpoint to go on from; choose another "
          "folder, or replace it with --overwrite"));
}

// "step_00000100", and what a process that was killed left of one.
bool is_of_checkpoints(const std::string& name) {
  const std::string whole = name.substr(0, name.find('.'));
  return name == kLatestFile || name == kStoreLock ||
         name.starts_with(std::string(kLatestFile) + ".") ||
         step_of_name(whole).has_value();
}

void remove_checkpoints(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_of_checkpoints(entry.path().filename().string())) continue;
    fs::remove_all(entry.path(), error);
    if (error)
      throw UsageError(cat("--overwrite: cannot remove ",
                           quoted(entry.path().string()), ": ",
                           error.message()));
  }
  fs::remove(folder, error);  // what is not ours stays, and the folder with it
}

// A run leaves these from its first step on; weights and config.json may also
// be somebody else's.
bool tells_of_a_run(std::string_view name) {
  return name.starts_with(kEvents) || name == "metrics.jsonl" ||
         name == "summary.json";
}

void remove_former_run(const std::string& path) {
  std::vector<fs::path> former;
  bool is_run = false;
  std::string whole;  // a file that need not be a run's
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!is_of_a_run(name)) continue;
    former.push_back(entry.path());
    is_run = is_run || tells_of_a_run(name);
    if (!is_left_behind(name)) whole = name;
  }
  if (!whole.empty() && !is_run)
    throw UsageError(cat("--overwrite: --run ", quoted(path), " holds ",
                         quoted(whole),
                         " but no metrics.jsonl and no summary.json, so it is "
                         "not known to be a run; choose another folder"));
  for (const fs::path& file : former) {
    std::error_code error;
    fs::remove(file, error);
    if (error)
      throw UsageError(cat("--overwrite: cannot remove ", quoted(file.string()),
                           ": ", error.message()));
  }
}

// The lines up to a step. They end before one that makes no sense, as a machine
// that lost power may have left it.
struct KeptMetrics {
  std::string text;
  StepMetrics last;  // step 0: there is none
};

KeptMetrics metrics_until(const std::string& text, int64_t step) {
  KeptMetrics kept;
  size_t end = 0;
  try {
    for (size_t stop = text.find('\n'); stop != std::string::npos;
         stop = text.find('\n', end)) {
      const auto line =
          read_metrics(std::string_view(text).substr(end, stop + 1 - end), "");
      if (!line.empty() && line.front().step > step) break;
      if (!line.empty()) kept.last = line.front();
      end = stop + 1;
    }
  } catch (const UsageError&) {
    // The rest is not known to be of this run.
  }
  kept.text = text.substr(0, end);
  return kept;
}

}  // namespace

std::string checkpoint_folder(const std::string& run) { return run + "/ckpt"; }

std::string folder_owner() {
  return cat("process ", ::getpid(), " on ", host_name(), " since ",
             utc_time());
}

void check_late_file(const std::string& file, const std::string& run_folder) {
  const auto folder = [](const fs::path& path) {
    return (path / "").lexically_normal();
  };
  // It is about to be made.
  const bool inside =
      !run_folder.empty() &&
      folder(fs::path(file).parent_path()) == folder(run_folder);
  if (!run_folder.empty() && folder(file) == folder(run_folder))
    throw UsageError(
        cat("--trace ", quoted(file), " is the folder of --run; name a file"));
  if (inside && is_of_a_run(fs::path(file).filename().string()))
    throw UsageError(cat("--trace ", quoted(file),
                         " is a file that the run itself writes; choose "
                         "another name"));
  if (!inside || fs::exists(run_folder)) check_writable(file);
}

std::string config_json_note(const TrainJob& job) {
  const Architecture& a = job.settings.decoder.architecture;
  if (!a.qk_norm && a.experts.count > 0)
    return "model.safetensors comes without config.json: no architecture has "
           "experts but no norms of queries and keys (model.qk_norm)";
  if (a.experts.shared == 0) return "";
  return "model.safetensors comes without config.json: Qwen3-MoE has no shared "
         "experts (model.shared_experts), and architectures that have them "
         "compute something else";
}

RunFolder::RunFolder(const std::string& path, FolderUse use)
    : path_(path), use_(use) {
  make_run_folder(path);
  lock_.emplace(lock_run_folder(path));
  if (use == FolderUse::kGoOn) return;
  if (use == FolderUse::kNew) refuse_what_is_there(path);
  if (use == FolderUse::kUnlessEnded) refuse_what_has_ended(path);
  remove_former_run(path);
  remove_checkpoints(checkpoint_folder(path));
  open_records(std::ios::trunc);
}

// TensorBoard takes several files of a folder for one run; a second one in the
// same second is one of another name.
void RunFolder::open_records(std::ios::openmode mode) {
  metrics_.open(path_ + "/metrics.jsonl", std::ios::out | mode);
  const double now = seconds_since_1970();
  auto second = static_cast<int64_t>(now);
  while (fs::exists(events_path(path_, second, host_name()))) ++second;
  board_ = std::make_unique<TensorBoardWriter>(
      events_path(path_, second, host_name()), now);
}

void RunFolder::go_on_after(int64_t step) {
  if (use_ != FolderUse::kGoOn) return;
  const std::string file = path_ + "/metrics.jsonl";
  constexpr int64_t kMostBytes = int64_t{4} << 30;
  KeptMetrics kept;
  if (fs::exists(file))
    kept = metrics_until(read_file(file, kMostBytes, "the metrics"), step);
  write_file(file, kept.text);
  has_step_ = step > 0 && kept.last.step == step && !kept.last.eval_loss;
  open_records(std::ios::in);  // nothing is cut off
  metrics_.seekp(0, std::ios::end);
}

void RunFolder::write_summary(const RunSummary& summary) const {
  write_file(path_ + "/summary.json", to_json(summary));
}

void RunFolder::write_tokenizer(std::string_view json) const {
  if (!json.empty()) write_file(path_ + "/tokenizer.json", json);
}

void RunFolder::add_step(const StepMetrics& metrics) {
  metrics_ << json_line(metrics) << '\n' << std::flush;
  if (!metrics_)
    throw StorageError(cat(path_, "/metrics.jsonl cannot be written"));
  has_step_ = true;
  board_->add(metrics.step, seconds_since_1970(), scalars_of(metrics));
}

void RunFolder::add_evaluation(int64_t step, double loss) {
  board_->add(step, seconds_since_1970(), evaluation_scalars(loss));
  if (!has_step_) return;
  // In one write over the last brace: a reader never sees less than before.
  constexpr std::string_view kEndOfLine = "}\n";
  metrics_.seekp(-std::ssize(kEndOfLine), std::ios::end);
  metrics_ << evaluation_tail(loss) << '\n' << std::flush;
  if (!metrics_)
    throw StorageError(cat(path_, "/metrics.jsonl cannot be written"));
}

void RunFolder::add_tensor(const TrainJob& job, int32_t tensor,
                           std::span<const float> whole) {
  if (weights_ == nullptr)
    weights_ = std::make_unique<WeightFiles>(path_, job.plan.model);
  weights_->add(tensor, whole);
}

void RunFolder::finish_weights(const TrainJob& job) {
  weights_->finish();
  weights_.reset();
  if (config_json_note(job).empty())
    write_file(path_ + "/config.json",
               hf_config(hf_numbers_of(job.settings.decoder)));
}

void RunFolder::finish(const RunSummary& summary) {
  write_summary(summary);
  metrics_.close();
  const std::vector<TrainingRun> runs = read_runs({path_});
  write_file(report_path(), run_report({runs, 0}));
}

}  // namespace canzona::cli

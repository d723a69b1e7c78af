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
  std::optional<FileLock> lock = FileLock::take(
      file,
      cat("process ", ::getpid(), " on ", host_name(), " since ", utc_time()));
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
                         quoted(name),
                         "; choose another folder, or replace the run that is "
                         "there with --overwrite"));
  }
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

}  // namespace

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

RunFolder::RunFolder(const std::string& path, bool overwrite) : path_(path) {
  make_run_folder(path);
  lock_.emplace(lock_run_folder(path));
  if (!overwrite) refuse_what_is_there(path);
  remove_former_run(path);
  metrics_.open(path + "/metrics.jsonl");
  const double now = seconds_since_1970();
  board_ = std::make_unique<TensorBoardWriter>(
      events_path(path, static_cast<int64_t>(now), host_name()), now);
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

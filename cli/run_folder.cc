#include "cli/run_folder.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/hf_config.h"
#include "canzona/report/runs/run_report.h"
#include "cli/environment.h"
#include "cli/errors.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFiles = {"metrics.jsonl", "summary.json", "report.html",
                               "model.safetensors", "config.json"};
constexpr std::string_view kEvents = "events.out.tfevents.";

bool is_of_a_run(const std::string& name) {
  return name.starts_with(kEvents) ||
         std::ranges::find(kFiles, name) != kFiles.end();
}

void prepare(const std::string& path, bool overwrite) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path))
    throw UsageError(cat("--run ", quoted(path), ": cannot be made: ",
                         error ? error.message() : "it is no folder"));
  if (::access(path.c_str(), W_OK) != 0)
    throw UsageError(cat("--run ", quoted(path), ": cannot be written"));
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!overwrite)
      throw UsageError(cat("--run ", quoted(path), " is not empty: it holds ",
                           quoted(name),
                           "; choose another folder, or replace the run that "
                           "is there with --overwrite"));
    if (is_of_a_run(name)) fs::remove(entry.path());
  }
}

double seconds_since_1970() { return static_cast<double>(std::time(nullptr)); }

HfNumbers hf_numbers(const DecoderConfig& decoder) {
  return {.architecture = decoder.architecture,
          .length = decoder.length,
          .norm_epsilon = decoder.norm_epsilon,
          .rope_base = decoder.rope_base,
          .experts_per_token = decoder.experts_per_token,
          .balance_coefficient = decoder.balance_coefficient};
}

}  // namespace

RunFolder::RunFolder(const std::string& path, bool overwrite) : path_(path) {
  prepare(path, overwrite);
  metrics_.open(path + "/metrics.jsonl");
  board_ = std::make_unique<TensorBoardWriter>(
      events_path(path, std::time(nullptr), host_name()), seconds_since_1970());
}

void RunFolder::add_step(const StepMetrics& metrics) {
  metrics_ << json_line(metrics) << '\n' << std::flush;
  if (!metrics_)
    throw StorageError(cat(path_, "/metrics.jsonl cannot be written"));
  board_->add(metrics.step, seconds_since_1970(), scalars_of(metrics));
}

void RunFolder::add_tensor(const TrainJob& job, int32_t tensor,
                           std::span<const float> whole) {
  if (weights_ == nullptr)
    weights_ = std::make_unique<WeightFile>(path_ + "/model.safetensors",
                                            job.plan.model);
  weights_->add(tensor, whole);
}

void RunFolder::finish(const TrainJob& job, const RunSummary& summary) {
  if (weights_ != nullptr) weights_->finish();
  // Shared experts are not Qwen3's: such weights have no configuration there.
  if (job.settings.decoder.architecture.experts.shared == 0)
    write_file(path_ + "/config.json",
               hf_config(hf_numbers(job.settings.decoder)));
  write_file(path_ + "/summary.json", to_json(summary));
  metrics_.close();
  const std::vector<TrainingRun> runs = read_runs({path_});
  write_file(report_path(), run_report({runs, 0}));
}

}  // namespace canzona::cli

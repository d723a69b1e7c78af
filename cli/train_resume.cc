#include "cli/train_resume.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/train/model_source.h"
#include "canzona/train/resume.h"
#include "cli/precision.h"
#include "cli/run_folder.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAuto = "auto";
constexpr const char* kSavedConfig = "config.json";

std::string point_name(int64_t step) {
  return cat("checkpoint of step ", step);
}

[[noreturn]] void refuse_large_step(const std::string& wish) {
  throw UsageError(
      cat("--resume ", wish, ": expected a step of at most ", kMaxStep));
}

// Parses plain digits, as in --resume 1000.
std::optional<int64_t> wished_step(const std::string& wish) {
  int64_t step = 0;
  const char* end = wish.data() + wish.size();
  const auto [stop, error] = std::from_chars(wish.data(), end, step);
  if (wish.empty() || stop != end || wish.front() == '-') return std::nullopt;
  if (error == std::errc::result_out_of_range) refuse_large_step(wish);
  if (error != std::errc()) return std::nullopt;
  return step;
}

ResumePoint point_of(const CheckpointReader& reader, LoadRequest request,
                     bool is_of_run) {
  const int64_t step = reader.manifest().step;
  const std::string name = point_name(step);
  return {.request = std::move(request),
          .name = name,
          .hash = reader.manifest_hash(),
          .saved = saved_settings(reader.side_file(kSavedConfig), name),
          .has_run_state = has_run_state(reader),
          .is_of_run = is_of_run};
}

// Returns the newest checkpoint whose small files are valid and whose other
// files exist; loading verifies every byte, and falls back.
ResumePoint newest_point(const std::string& folder, bool is_of_run) {
  std::vector<std::string> faults;
  for (const ListedCheckpoint& listed : resume_order(Folder::open(folder))) {
    const std::string path = cat(folder, "/", listed.name);
    try {
      const CheckpointReader reader = open_checkpoint(path);
      const std::vector<std::string> missing = reader.check_files();
      if (missing.empty())
        return point_of(reader, {.folder = folder, .which = kAuto}, is_of_run);
      faults.push_back(cat(listed.name, ": ", missing.front()));
    } catch (const DataLost& error) {
      faults.push_back(error.what());
    } catch (const UsageError& error) {
      faults.push_back(error.what());
    }
  }
  throw CheckpointRefused(cat(
      "--resume auto: no checkpoint in ", quoted(folder), " is complete:\n",
      join(faults, "\n"),
      "\ncanzona ckpt verify shows details; --overwrite starts the run anew"));
}

[[noreturn]] void refuse_step(const std::string& folder, int64_t step) {
  std::vector<std::string> there;
  if (has_checkpoint(folder))
    for (const ListedCheckpoint& listed :
         list_checkpoints(Folder::open(folder)))
      there.push_back(cat(listed.step));
  throw CheckpointRefused(
      cat("--resume ", step, ": no checkpoint of this step in ", quoted(folder),
          there.empty() ? "" : "; found those of steps ", join(there, ", ")));
}

ResumePoint point_of_step(const std::string& folder, int64_t step) {
  if (step > kMaxStep) refuse_large_step(cat(step));
  const std::string path = cat(folder, "/", checkpoint_name(step));
  if (!fs::exists(path)) refuse_step(folder, step);
  return point_of(open_checkpoint(path), {.folder = folder, .which = cat(step)},
                  true);
}

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Accepts a checkpoint's own folder, or one that contains checkpoints.
ResumePoint point_at(const std::string& path, const std::string& run) {
  const bool is_checkpoint = fs::exists(path + "/manifest.json");
  if (!is_checkpoint) {
    require_reachable(checkpoint_folder(path));
    for (const std::string& folder : {checkpoint_folder(path), path})
      if (has_checkpoint(folder))
        return newest_point(
            folder,
            !run.empty() && is_same_folder(folder, checkpoint_folder(run)));
    if (!fs::is_directory(path))
      throw UsageError(cat("--resume ", quoted(path),
                           ": no such folder; expected auto, a step, or a "
                           "folder with a checkpoint"));
  }
  const fs::path whole = fs::path(path + "/").lexically_normal().parent_path();
  const fs::path parent =
      whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  // One that was set aside no longer belongs to the run.
  const bool is_of_run = !run.empty() &&
                         is_same_folder(parent, checkpoint_folder(run)) &&
                         step_of_name(whole.filename().string());
  return point_of(open_checkpoint(path),
                  {.folder = parent.string(), .which = path}, is_of_run);
}

[[noreturn]] void refuse_weights_alone(const std::string& wish,
                                       const std::string& folder,
                                       const std::string& name) {
  throw UsageError(
      cat("--resume ", quoted(wish, 300), ": the ", name, " in ",
          quoted(folder, 300),
          " holds only weights, from canzona ckpt import-hf, and no state to "
          "resume from; start a run from them with canzona train --init ",
          printable(folder), " --run NEW_FOLDER"));
}

std::optional<ResumePoint> any_point(const std::string& wish,
                                     const std::string& run) {
  const std::optional<int64_t> step = wished_step(wish);
  if (wish != kAuto && !step) return point_at(wish, run);
  if (run.empty())
    throw UsageError(
        cat("--resume ", wish,
            ": expected --run with the folder of the run to resume"));
  const std::string folder = checkpoint_folder(run);
  require_reachable(folder);
  if (step) return point_of_step(folder, *step);
  if (!has_checkpoint(folder)) {
    refuse_what_is_left(run);
    return std::nullopt;
  }
  return newest_point(folder, true);
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const std::string& wish,
                                             const std::string& run) {
  std::optional<ResumePoint> point = any_point(wish, run);
  if (point && !point->has_run_state)
    refuse_weights_alone(wish, point->request.folder, point->name);
  return point;
}

std::optional<Settings> unfinished_settings(const std::string& run) {
  const std::optional<RunSummary> summary = summary_in(run);
  if (!summary || summary->has_ended()) return std::nullopt;
  return saved_settings(summary->config.dump(), cat("unfinished run ", run));
}

std::string resume_hint(const std::string& run) {
  if (run.empty() || !has_checkpoint(checkpoint_folder(run))) return "";
  const auto newest = resume_order(Folder::open(checkpoint_folder(run)));
  return cat("the newest checkpoint is of step ", newest.front().step,
             "; canzona train --run ", printable(run),
             " --resume auto resumes from it");
}

TrainConfig resumed_config(const ConfigArguments& arguments,
                           const ResumePoint& point, int64_t launched) {
  const TrainConfig saved = make_settled_config(point.saved);
  const TrainConfig config = read_config(
      arguments,
      {.saved = point.saved, .has_weights = true, .launched = launched});
  require_resumable(saved, config, point.name);
  return config;
}

}  // namespace canzona::cli

#include "cli/former_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/store.h"
#include "canzona/saving/load_state.h"
#include "cli/output.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFiles = {"metrics.jsonl", "summary.json",
                               "report.html",   "model.safetensors",
                               "config.json",   "tokenizer.json"};
constexpr std::string_view kEvents = "events.out.tfevents.";

// "model.safetensors.4711.0.tmp", left by a run that was killed while writing.
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

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
}

// "events.out.tfevents.1700000000.node7", as events_path() names them. Other
// programs append a process and a count (".4711.0"), and people anything.
bool is_event_file(std::string_view name) {
  if (!name.starts_with(kEvents)) return false;
  name.remove_prefix(kEvents.size());
  const size_t dot = std::min(name.find('.'), name.size());
  if (!is_number(name.substr(0, dot)) || dot + 1 >= name.size()) return false;
  std::string_view host = name.substr(dot + 1);
  size_t numbers = 0;
  for (size_t at = host.rfind('.'); at != std::string_view::npos;
       at = host.rfind('.')) {
    if (!is_number(host.substr(at + 1))) break;
    ++numbers;
    host = host.substr(0, at);
  }
  return numbers != 2;
}

// Throws UsageError if the folder may not be read.
fs::directory_iterator entries_of(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error)
    throw UsageError(cat("cannot read the folder ",
                         quoted(folder.string(), 300), ": ", error.message()));
  return entries;
}

void refuse_what_is_there(const std::string& path) {
  for (const fs::directory_entry& entry : entries_of(path)) {
    const std::string name = entry.path().filename().string();
    if (name == kRunLock) continue;
    if (entry.path() == fs::path(checkpoint_folder(path)) &&
        is_empty_store(entry.path().string()))
      continue;
    throw UsageError(cat("--run ", quoted(path), " is not empty: it holds ",
                         quoted(name), "; choose another folder, ",
                         has_checkpoint(checkpoint_folder(path))
                             ? "resume the existing run (--resume auto), or "
                               "replace it (--overwrite)"
                             : "or replace the existing run with --overwrite"));
  }
}

// The caller checked before the lock was held whether there is something to
// resume from.
void refuse_what_was_saved(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  if (!has_checkpoint(folder)) return;
  throw UsageError(cat("--resume auto: there was nothing to resume from in ",
                       quoted(folder),
                       ", but meanwhile another process has saved a checkpoint "
                       "there; nothing was changed; start again"));
}

// Checkpoints that were set aside when the run went back, or while one of the
// same step was replaced, are complete: they are lost only on request.
void refuse_what_was_set_aside(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  for (const ListedCheckpoint& aside : list_set_aside(Folder::open(folder)))
    throw UsageError(
        cat("--resume auto: no checkpoint of --run ", quoted(path, 300),
            " is left except those set aside; nothing was changed; move ",
            quoted(cat(folder, "/", aside.name), 300),
            " to another folder and resume from there (--resume PATH with "
            "another --run), or replace everything with --overwrite alone"));
}

// Returns the last of the checkpoints that somebody has renamed, such as
// "step_00000006.bak"; incomplete ones do not count. Returns "" if there is
// none.
std::string renamed_checkpoint(const fs::path& folder) {
  std::string last;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return last;
  for (const fs::directory_entry& entry : entries_of(folder)) {
    const std::string name = entry.path().filename().string();
    const size_t end = std::min(name.find('.'), name.size());
    if (end < name.size() && step_of_name(name.substr(0, end)) &&
        !is_pending_name(name) &&
        fs::exists(entry.path() / "manifest.json", error))
      last = std::max(last, name);
  }
  return last;
}

// The run must resume from it, or stay.
void refuse_what_was_renamed(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  const std::string name = renamed_checkpoint(folder);
  if (name.empty()) return;
  throw UsageError(
      cat("--resume auto: no checkpoint of --run ", quoted(path, 300),
          " is left under its name, but ", quoted(cat(folder, "/", name), 300),
          " holds one; nothing was changed; name it ",
          quoted(name.substr(0, name.find('.'))),
          " again to resume from it, or choose another folder for --run"));
}

// A run that was killed before its first checkpoint has nothing to lose.
void refuse_what_has_ended(const std::string& path) {
  const std::optional<RunSummary> summary = summary_in(path);
  if (!summary) return refuse_what_is_there(path);
  if (!summary->has_ended()) return;
  throw UsageError(cat("--resume auto: --run ", quoted(path),
                       " holds a finished run (", printable(summary->state),
                       " after ", counted_text(summary->steps, "step"),
                       ") and no checkpoint to resume from; choose "
                       "another folder, or replace the run with --overwrite"));
}

// If the folder is a link, several runs may have their checkpoints there.
FileLock lock_store(const std::string& folder) {
  const std::string file = cat(folder, "/", kStoreLock);
  std::optional<FileLock> lock = FileLock::take(file, folder_owner());
  if (!lock)
    throw UsageError(cat("--run: the checkpoints in ", quoted(folder),
                         " are in use by ", printable(FileLock::holder(file)),
                         "; wait for it, end it, or choose another folder"));
  return std::move(*lock);
}

// The caller must hold the lock.
void remove_what_is_of_checkpoints(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : entries_of(folder)) {
    if (!is_name_of_store(entry.path().filename().string())) continue;
    fs::remove_all(entry.path(), error);
    if (error)
      throw UsageError(cat("--run: cannot remove ",
                           quoted(entry.path().string()), ": ",
                           error.message()));
  }
}

// True for files that a run has from its first step on; weights and config.json
// may also belong to something else.
bool tells_of_a_run(std::string_view name) {
  return is_event_file(name) || name == "metrics.jsonl" ||
         name == "summary.json";
}

// A file of the run will be written there.
void require_no_folder(const fs::path& file) {
  std::error_code error;
  if (!fs::is_directory(file, error)) return;
  throw UsageError(
      cat("--run: ", quoted(file.string(), 300),
          " is a folder, but the run must write a file there; nothing was "
          "changed; move it away or choose another folder for --run"));
}

// Returns the files of a run in a folder. Throws UsageError if they may not be
// a run's.
std::vector<fs::path> files_of_former_run(const std::string& path) {
  std::vector<fs::path> former;
  bool is_run = false;
  std::string whole;  // a file that may not be a run's
  for (const fs::directory_entry& entry : entries_of(path)) {
    const std::string name = entry.path().filename().string();
    if (!is_of_a_run(name)) continue;
    require_no_folder(entry.path());
    former.push_back(entry.path());
    is_run = is_run || tells_of_a_run(name);
    if (!is_left_behind(name)) whole = name;
  }
  if (!whole.empty() && !is_run)
    throw UsageError(cat("--run ", quoted(path), " holds ", quoted(whole),
                         " but neither metrics.jsonl nor summary.json, so it "
                         "may not be a run; choose another folder"));
  return former;
}

// Checks before anything is removed that nobody else writes checkpoints there,
// and that they can be removed and written.
void check_former_store(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error))
    throw UsageError(cat("--run: ", quoted(folder, 300),
                         " is not a folder, but checkpoints are saved there; "
                         "remove it or choose another folder"));
  if (::access(folder.c_str(), W_OK) != 0)
    throw UsageError(cat("--run: the folder ", quoted(folder, 300),
                         " for checkpoints is not writable"));
  lock_store(folder);
}

bool has_former_checkpoints(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !is_empty_store(folder);
}

}  // namespace

bool is_of_a_run(std::string_view name) {
  return is_event_file(name) || is_left_behind(name) ||
         std::ranges::find(kFiles, name) != kFiles.end();
}

bool is_empty_store(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  return std::ranges::all_of(entries_of(folder),
                             [](const fs::directory_entry& entry) {
                               return entry.path().filename() == kStoreLock;
                             });
}

std::string checkpoint_folder(const std::string& run) { return run + "/ckpt"; }

void require_reachable(const std::string& folder) {
  std::error_code error;
  if (!fs::is_symlink(folder, error) || fs::exists(folder, error)) return;
  const std::string target = fs::read_symlink(folder, error).string();
  throw UsageError(cat(
      quoted(folder, 300), " is a link to ", quoted(target, 300),
      ", which does not exist (is its disk mounted?); nothing was changed; "
      "restore it, or remove the link to continue without its checkpoints"));
}

void refuse_what_is_left(const std::string& run) {
  refuse_what_was_set_aside(run);
  refuse_what_was_renamed(run);
}

std::optional<RunSummary> summary_in(const std::string& run) {
  const std::string file = run + "/summary.json";
  constexpr int64_t kMostBytes = 256 << 20;
  if (!is_there(file)) return std::nullopt;
  return read_summary(read_file(file, kMostBytes, "the run's summary"), file);
}

std::string folder_owner() {
  return cat("process ", ::getpid(), " on ", host_name(), " since ",
             utc_time());
}

bool check_former(const std::string& path, FolderUse use) {
  require_reachable(checkpoint_folder(path));
  if (use == FolderUse::kNew) refuse_what_is_there(path);
  if (use == FolderUse::kUnlessSaved || use == FolderUse::kUnlessEnded) {
    refuse_what_was_saved(path);
    refuse_what_is_left(path);
  }
  if (use == FolderUse::kUnlessEnded) refuse_what_has_ended(path);
  const std::string folder = checkpoint_folder(path);
  check_former_store(folder);
  return !files_of_former_run(path).empty() || has_former_checkpoints(folder);
}

void require_no_folders(const std::string& path) {
  for (const char* file : kFiles) require_no_folder(fs::path(path) / file);
}

void remove_former_files(const std::string& path) {
  for (const fs::path& file : files_of_former_run(path)) {
    std::error_code error;
    fs::remove(file, error);
    if (error)
      throw UsageError(cat("--run: cannot remove ", quoted(file.string()), ": ",
                           error.message()));
  }
}

void remove_former_run(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  std::error_code error;
  std::optional<FileLock> lock;
  if (fs::is_directory(folder, error)) lock.emplace(lock_store(folder));
  remove_former_files(path);
  if (!lock) return;
  remove_what_is_of_checkpoints(folder);
  lock.reset();
  // A link to a folder is kept, and so is a folder with files that are not
  // ours.
  if (!fs::is_symlink(folder, error)) fs::remove(folder, error);
}

int64_t room_without_former(const std::string& folder) {
  std::error_code error;
  const bool is_there = fs::is_directory(folder, error);
  int64_t room =
      Folder::open(is_there ? folder : fs::path(folder).parent_path().string())
          .free_bytes();
  if (!is_there) return room;
  for (const fs::directory_entry& entry : entries_of(folder)) {
    if (!is_name_of_store(entry.path().filename().string())) continue;
    for (const fs::directory_entry& file :
         fs::recursive_directory_iterator(entry.path(), error))
      if (file.is_regular_file(error))
        room += static_cast<int64_t>(file.file_size(error));
  }
  return room;
}

namespace {

// Parses a line, giving step 0 for an empty one; returns nothing if it cannot
// be parsed.
std::optional<StepMetrics> metrics_of_line(std::string_view line) {
  try {
    const std::vector<StepMetrics> read = read_metrics(line, "");
    return read.empty() ? StepMetrics{} : read.front();
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

}  // namespace

KeptMetrics metrics_until(const std::string& text, int64_t step) {
  KeptMetrics kept;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t stop = std::min(text.find('\n', begin), text.size());
    const bool is_cut = stop == text.size();
    const std::string line = text.substr(begin, stop - begin) + "\n";
    begin = stop + 1;
    ++number;
    const std::optional<StepMetrics> read = metrics_of_line(line);
    if (!read && is_cut) break;  // the step of a killed run
    // Lines of an earlier start may precede those of a later one.
    if (read && read->step > step) continue;
    if (!read || kept.left_out > 0) {
      // The rest may not belong to this run.
      if (kept.left_out++ == 0) kept.odd_line = number;
      continue;
    }
    if (read->step > 0)
      kept.add(line, *read);
    else
      kept.text += line;
  }
  return kept;
}

std::string missing_steps(const KeptMetrics& kept, int64_t step) {
  int64_t next = kept.lines.empty() ? 1 : kept.lines.front().step;
  for (const KeptMetrics::Line& line : kept.lines) {
    if (line.step > next) break;
    next = line.step + 1;
  }
  if (next > step) return "";
  const auto after = std::ranges::find_if(
      kept.lines,
      [&](const KeptMetrics::Line& line) { return line.step > next; });
  const int64_t last = after == kept.lines.end() ? step : after->step - 1;
  return last == next ? cat("step ", next, " is missing")
                      : cat("steps ", next, " to ", last, " are missing");
}

}  // namespace canzona::cli

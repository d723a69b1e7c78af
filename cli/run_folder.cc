#include "cli/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/hf_config.h"
#include "canzona/checkpoint/store.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/report/train_lines.h"
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

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
}

// "events.out.tfevents.1700000000.node7", as events_path() names them. Other
// programs add a process and a count (".4711.0"), and people what they like.
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

bool is_of_a_run(std::string_view name) {
  return is_event_file(name) || is_left_behind(name) ||
         std::ranges::find(kFiles, name) != kFiles.end();
}

MissingFolders make_run_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    throw UsageError(cat("--run ", quoted(path), ": it is no folder"));
  if (fs::is_directory(path, error) && ::access(path.c_str(), W_OK) != 0)
    throw UsageError(cat("--run ", quoted(path), ": cannot be written"));
  try {
    return MissingFolders(path);
  } catch (const StorageError& failure) {
    throw StorageError(cat("--run ", quoted(path), ": ", failure.what()));
  } catch (const UsageError& failure) {
    throw UsageError(cat("--run ", quoted(path), ": ", failure.what()));
  }
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

// A folder for checkpoints, or a link to one, with nothing but a lock.
bool is_empty_store(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  return std::ranges::all_of(fs::directory_iterator(folder),
                             [](const fs::directory_entry& entry) {
                               return entry.path().filename() == kStoreLock;
                             });
}

void refuse_what_is_there(const std::string& path) {
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name == kLock) continue;
    if (entry.path() == fs::path(checkpoint_folder(path)) &&
        is_empty_store(entry.path()))
      continue;
    throw UsageError(cat("--run ", quoted(path), " is not empty: it holds ",
                         quoted(name), "; choose another folder, ",
                         has_checkpoint(checkpoint_folder(path))
                             ? "go on with the run that is there (--resume "
                               "auto), or replace it (--overwrite)"
                             : "or replace the run that is there with "
                               "--overwrite"));
  }
}

// The caller asked before the lock was held whether there is something to
// resume from.
void refuse_what_was_saved(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  if (!has_checkpoint(folder)) return;
  throw UsageError(cat("--resume auto: there was nothing to resume from in ",
                       quoted(folder),
                       ", and a checkpoint has appeared meanwhile, of another "
                       "process; nothing was changed; start again"));
}

// Checkpoints that were set aside when the run went back, or while one of the
// same step was replaced, are whole: only who asks for it loses them.
void refuse_what_was_set_aside(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  for (const ListedCheckpoint& aside : list_set_aside(Folder::open(folder)))
    throw UsageError(cat("--resume auto: no checkpoint of --run ",
                         quoted(path, 300),
                         " is left but what was set aside; nothing was "
                         "changed; move ",
                         quoted(cat(folder, "/", aside.name), 300),
                         " to another folder and go on from there (--resume "
                         "PATH with another --run), or replace all of it with "
                         "--overwrite alone"));
}

// The last of the checkpoints that somebody has renamed: "step_00000006.bak".
// What was being written is none; "": there is no such name.
std::string renamed_checkpoint(const fs::path& folder) {
  std::string last;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return last;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const size_t end = std::min(name.find('.'), name.size());
    if (end < name.size() && step_of_name(name.substr(0, end)) &&
        !is_pending_name(name) &&
        fs::exists(entry.path() / "manifest.json", error))
      last = std::max(last, name);
  }
  return last;
}

// The run is to go on from it, or to stay.
void refuse_what_was_renamed(const std::string& path) {
  const std::string folder = checkpoint_folder(path);
  const std::string name = renamed_checkpoint(folder);
  if (name.empty()) return;
  throw UsageError(
      cat("--resume auto: no checkpoint of --run ", quoted(path, 300),
          " is left under its name, but ", quoted(cat(folder, "/", name), 300),
          " holds one; nothing was changed; name it ",
          quoted(name.substr(0, name.find('.'))),
          " again to go on from it, or choose another folder for --run"));
}

// A run that was killed before its first checkpoint has nothing to lose.
void refuse_what_has_ended(const std::string& path) {
  const std::optional<RunSummary> summary = summary_in(path);
  if (!summary) return refuse_what_is_there(path);
  if (!summary->has_ended()) return;
  throw UsageError(
      cat("--resume auto: --run ", quoted(path),
          " holds a run that has come to its end (", printable(summary->state),
          " after ", summary->steps,
          " steps) and no checkpoint to go on from; choose another "
          "folder, or replace it with --overwrite"));
}

// If the folder is a link, several runs may have their checkpoints there.
FileLock lock_store(const std::string& folder) {
  const std::string file = cat(folder, "/", kStoreLock);
  std::optional<FileLock> lock = FileLock::take(file, folder_owner());
  if (!lock)
    throw UsageError(cat("--overwrite: the checkpoints in ", quoted(folder),
                         " are in use by ", printable(FileLock::holder(file)),
                         "; wait for it, end it, or choose another folder"));
  return std::move(*lock);
}

// Whoever calls it holds the lock.
void remove_what_is_of_checkpoints(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_name_of_store(entry.path().filename().string())) continue;
    fs::remove_all(entry.path(), error);
    if (error)
      throw UsageError(cat("--overwrite: cannot remove ",
                           quoted(entry.path().string()), ": ",
                           error.message()));
  }
}

// A run leaves these from its first step on; weights and config.json may also
// be somebody else's.
bool tells_of_a_run(std::string_view name) {
  return is_event_file(name) || name == "metrics.jsonl" ||
         name == "summary.json";
}

// Where a file of the run is to be written.
void require_no_folder(const fs::path& file) {
  std::error_code error;
  if (!fs::is_directory(file, error)) return;
  throw UsageError(cat("--run: ", quoted(file.string(), 300),
                       " is a folder, and a file of the run is to lie there; "
                       "nothing was changed; move it away or choose another "
                       "folder"));
}

// The files of a run in a folder. UsageError if they need not be a run's.
std::vector<fs::path> files_of_former_run(const std::string& path) {
  std::vector<fs::path> former;
  bool is_run = false;
  std::string whole;  // a file that need not be a run's
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!is_of_a_run(name)) continue;
    require_no_folder(entry.path());
    former.push_back(entry.path());
    is_run = is_run || tells_of_a_run(name);
    if (!is_left_behind(name)) whole = name;
  }
  if (!whole.empty() && !is_run)
    throw UsageError(cat("--overwrite: --run ", quoted(path), " holds ",
                         quoted(whole),
                         " but no metrics.jsonl and no summary.json, so it is "
                         "not known to be a run; choose another folder"));
  return former;
}

void remove_former_files(const std::string& path) {
  for (const fs::path& file : files_of_former_run(path)) {
    std::error_code error;
    fs::remove(file, error);
    if (error)
      throw UsageError(cat("--overwrite: cannot remove ", quoted(file.string()),
                           ": ", error.message()));
  }
}

// What can be known before anything is removed: that nobody else writes
// checkpoints there, and that they can be removed and written.
void check_former_store(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error))
    throw UsageError(cat("--run: ", quoted(folder, 300),
                         " is no folder, and checkpoints are to lie there; "
                         "remove it or choose another folder"));
  if (::access(folder.c_str(), W_OK) != 0)
    throw UsageError(cat("--run: the folder ", quoted(folder, 300),
                         ", where checkpoints are to lie, cannot be written"));
  lock_store(folder);
}

bool has_former_checkpoints(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !is_empty_store(folder);
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
  // A link to a folder stays; so does a folder with what is not ours.
  if (!fs::is_symlink(folder, error)) fs::remove(folder, error);
}

// That of the disk that checkpoints go to, and what removing those of the
// former run frees there.
int64_t room_without_former(const std::string& folder) {
  std::error_code error;
  const bool is_there = fs::is_directory(folder, error);
  int64_t room =
      Folder::open(is_there ? folder : fs::path(folder).parent_path().string())
          .free_bytes();
  if (!is_there) return room;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_name_of_store(entry.path().filename().string())) continue;
    for (const fs::directory_entry& file :
         fs::recursive_directory_iterator(entry.path(), error))
      if (file.is_regular_file(error))
        room += static_cast<int64_t>(file.file_size(error));
  }
  return room;
}

// "checkpoints of steps 200, 300 are set aside …"; "": there are none.
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
  return cat("the run goes on from step ", step,
             ": checkpoints of later steps (", join(steps, ", "),
             ") are set aside in ", printable(path),
             " as step_N.left-…, until newer ones take their place "
             "(save.keep_last)");
}

// The lines up to a step. They end before one that makes no sense, as a machine
// that lost power may have left it; a last one that lacks its newline is whole
// if it makes sense.
struct KeptMetrics {
  struct Line {
    size_t begin = 0;  // in the text
    int64_t step = 0;
    bool is_evaluated = false;
  };
  std::string text;
  std::vector<Line> lines;
  int64_t left_out = 0;  // lines, from the one that makes no sense,
  int64_t odd_line = 0;  // which has this number

  // A file that two starts have written to may tell of a step twice: the later
  // line is that of the start whose checkpoint the run goes on from.
  void add(std::string_view line, const StepMetrics& read) {
    while (!lines.empty() && lines.back().step >= read.step) {
      text.resize(lines.back().begin);
      lines.pop_back();
    }
    lines.push_back({text.size(), read.step, read.eval_loss.has_value()});
    text += line;
  }
};

// What a line tells, with step 0 of an empty one; nothing if it makes no sense.
std::optional<StepMetrics> metrics_of_line(std::string_view line) {
  try {
    const std::vector<StepMetrics> read = read_metrics(line, "");
    return read.empty() ? StepMetrics{} : read.front();
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

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
    if (!read && is_cut) break;  // the step of a run that was killed
    // Lines of an earlier start may stand before those of a later one.
    if (read && read->step > step) continue;
    if (!read || kept.left_out > 0) {
      // The rest is not known to be of this run.
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

// "steps 2 to 3 are missing": the first ones, if the lines do not tell of every
// step; "" if they do. A run may have begun with another's checkpoint: then its
// first line is of a later step.
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

// Writes all of it, or says why not: 0, or the system's number of the error.
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

std::string checkpoint_folder(const std::string& run) { return run + "/ckpt"; }

void require_reachable(const std::string& folder) {
  std::error_code error;
  if (!fs::is_symlink(folder, error) || fs::exists(folder, error)) return;
  const std::string target = fs::read_symlink(folder, error).string();
  throw UsageError(cat(quoted(folder, 300), " is a link to ",
                       quoted(target, 300),
                       ", which is not there (is its disk mounted?); nothing "
                       "was changed; bring it back, or remove the link to do "
                       "without the checkpoints behind it"));
}

void refuse_what_is_left(const std::string& run) {
  refuse_what_was_set_aside(run);
  refuse_what_was_renamed(run);
}

std::optional<RunSummary> summary_in(const std::string& run) {
  const std::string file = run + "/summary.json";
  constexpr int64_t kMostBytes = 256 << 20;
  if (!fs::exists(file)) return std::nullopt;
  return read_summary(read_file(file, kMostBytes, "the run's summary"), file);
}

std::string folder_owner() {
  return cat("process ", ::getpid(), " on ", host_name(), " since ",
             utc_time());
}

void check_late_file(const std::string& flag, const std::string& file,
                     const std::string& run_folder) {
  const auto folder = [](const fs::path& path) {
    return (path / "").lexically_normal();
  };
  // It is about to be made.
  const bool inside =
      !run_folder.empty() &&
      folder(fs::path(file).parent_path()) == folder(run_folder);
  if (!run_folder.empty() && folder(file) == folder(run_folder))
    throw UsageError(
        cat(flag, " ", quoted(file), " is the folder of --run; name a file"));
  if (inside && is_of_a_run(fs::path(file).filename().string()))
    throw UsageError(cat(flag, " ", quoted(file),
                         " is a file that the run itself writes; choose "
                         "another name"));
  if (inside && !fs::exists(run_folder)) return;
  try {
    check_writable(file);
  } catch (const UsageError& error) {
    throw UsageError(cat(flag, ": ", error.what()));
  }
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
  // The bytes under the end of the line have their room on the disk.
  const bool is_cut = ::ftruncate(fd_, size_) == 0 &&
                      write_at(fd_, at, kEndOfLine.substr(0, over)) == 0;
  throw StorageError(cat(path_, " cannot be written: ", std::strerror(code),
                         is_cut ? "" : ", nor cut back to its last line"));
}

RunFolder::RunFolder(const std::string& path, FolderUse use)
    : path_(path),
      use_(use),
      made_(make_run_folder(path)),
      lock_(lock_run_folder(path)) {
  if (use == FolderUse::kGoOn) {
    for (const char* file : kFiles) require_no_folder(fs::path(path) / file);
    return;
  }
  holds_former_ = check_former();
  if (!holds_former_) open_records(false);
}

bool RunFolder::check_former() const {
  require_reachable(checkpoint_folder(path_));
  if (use_ == FolderUse::kNew) refuse_what_is_there(path_);
  if (use_ == FolderUse::kUnlessSaved || use_ == FolderUse::kUnlessEnded) {
    refuse_what_was_saved(path_);
    refuse_what_is_left(path_);
  }
  if (use_ == FolderUse::kUnlessEnded) refuse_what_has_ended(path_);
  const std::string folder = checkpoint_folder(path_);
  check_former_store(folder);
  return !files_of_former_run(path_).empty() || has_former_checkpoints(folder);
}

void RunFolder::replace_former(int64_t bytes_to_save) {
  if (!holds_former_) return;
  check_former();
  const std::string folder = checkpoint_folder(path_);
  if (const int64_t room = room_without_former(folder); room < bytes_to_save)
    throw StorageError(cat("the checkpoints of this run need ",
                           human_bytes(bytes_to_save), " in ",
                           quoted(folder, 300), ", and without those of the ",
                           "run that is to be replaced ", human_bytes(room),
                           " are free; nothing was changed; keep fewer "
                           "(--keep-last), or choose another disk"));
  remove_former_run(path_);
  holds_former_ = false;
  open_records(false);
}

// TensorBoard takes several files of a folder for one run; a second one in the
// same second is one of another name.
void RunFolder::open_records(bool keep) {
  metrics_.emplace(path_ + "/metrics.jsonl", keep);
  open_board();
}

void RunFolder::open_board() {
  const double now = seconds_since_1970();
  auto second = static_cast<int64_t>(now);
  while (fs::exists(events_path(path_, second, host_name()))) ++second;
  board_path_ = events_path(path_, second, host_name());
  board_ = std::make_unique<TensorBoardWriter>(board_path_, now);
}

// A record that is not whole ends what TensorBoard reads of its file: it is cut
// off, and the next one begins another file.
void RunFolder::add_scalars(int64_t step, const std::vector<Scalar>& scalars) {
  uintmax_t whole = 0;
  std::error_code error;
  try {
    if (board_ == nullptr) open_board();
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

// What can fail is tried before anything changes. Checkpoints come before
// metrics: a run that is killed in between goes on from the same step.
std::vector<std::string> RunFolder::go_on_after(int64_t step) {
  if (use_ != FolderUse::kGoOn) return {};
  const std::string file = path_ + "/metrics.jsonl";
  constexpr int64_t kMostBytes = int64_t{4} << 30;
  KeptMetrics kept;
  if (fs::exists(file))
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
  open_records(true);
  if (kept.left_out > 0)
    notes.push_back(cat(file, ": line ", kept.odd_line, " makes no sense; ",
                        counted_text(kept.left_out, "line"),
                        " of steps before, this one among them, left out"));
  else if (const std::string missing = missing_steps(kept, step);
           !missing.empty())
    notes.push_back(cat(file, ": ", missing, " before step ", step,
                        ", which the run goes on from"));
  return notes;
}

void RunFolder::forget_unless_begun() {
  if (use_ == FolderUse::kGoOn || has_begun_ || holds_former_) return;
  metrics_.reset();
  board_.reset();
  remove_former_files(path_);
  const fs::path store = checkpoint_folder(path_);
  std::error_code error;
  if (!fs::is_symlink(store, error) && is_empty_store(store))
    fs::remove(store, error);
}

void RunFolder::write_summary(const RunSummary& summary) const {
  write_file(path_ + "/summary.json", to_json(summary));
}

void RunFolder::write_tokenizer(std::string_view json) const {
  const std::string file = path_ + "/tokenizer.json";
  if (!json.empty() && !fs::exists(file)) write_file(file, json);
}

void RunFolder::add_step(const StepMetrics& metrics) {
  has_begun_ = true;
  has_step_ = false;
  metrics_->add(json_line(metrics) + "\n");
  has_step_ = true;
  add_scalars(metrics.step, scalars_of(metrics));
}

void RunFolder::add_evaluation(int64_t step, double loss) {
  // In one write over the last brace: a reader never sees less than before.
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
  write_file(report_path(), run_report({runs, 0}));
}

}  // namespace canzona::cli

#include "canzona/checkpoint/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/shard_writer.h"

namespace canzona::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr size_t kStepDigits = 8;
constexpr std::string_view kPendingMark = ".tmp-";
constexpr std::string_view kAsideMark = ".old-";
constexpr std::string_view kLeftMark = ".left-";
// The second line of `latest` while later checkpoints that no longer belong to
// the run lie beside the one that it names. Without it, later ones were left by
// a run that was killed before it could name them.
constexpr std::string_view kLeftLine = "later steps are left";

// Returns an id that is unique on this machine and unlikely to occur on
// another; a collision only means that the name is taken.
std::string fresh_id() {
  static std::atomic<unsigned> counter{0};
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return cat(::getpid(), "-", int64_t{now.tv_sec}, "-", int64_t{now.tv_nsec},
             "-", counter++);
}

// Digits and dashes, as fresh_id() makes them.
bool is_store_id(std::string_view id) {
  return !id.empty() &&
         id.find_first_not_of("0123456789-") == std::string_view::npos;
}

// "step_00000100.tmp-…": the step's name in front of a mark and an id.
std::optional<std::string> marked_name(std::string_view name,
                                       std::string_view mark) {
  const size_t at = name.find(mark);
  if (at == std::string_view::npos ||
      !is_store_id(name.substr(at + mark.size())))
    return std::nullopt;
  const std::string_view front = name.substr(0, at);
  if (front != kLatestFile && !step_of_name(front)) return std::nullopt;
  return std::string(front);
}

struct LatestLines {
  std::string name;           // empty if there is no valid name
  bool leaves_later = false;  // later ones no longer belong to the run
};

LatestLines read_latest(const Folder& folder) {
  constexpr int64_t kMaxBytes = 64;
  try {
    std::string text = folder.read_file(kLatestFile, kMaxBytes);
    while (text.ends_with('\n')) text.pop_back();
    const size_t end = text.find('\n');
    const bool leaves_later = end != std::string::npos;
    if (leaves_later && text.substr(end + 1) != kLeftLine) return {};
    text.resize(std::min(end, text.size()));
    return step_of_name(text) ? LatestLines{text, leaves_later} : LatestLines{};
  } catch (const DataLost&) {
    return {};
  }
}

bool has_later(const Folder& folder, int64_t step) {
  return std::ranges::any_of(
      list_checkpoints(folder),
      [&](const ListedCheckpoint& c) { return c.step > step; });
}

void make_store_folder(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos)
    throw UsageError(cat("no name of a folder: ", quoted(path)));
  while (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    if (errno != EINTR)
      throw_write_error(cat("cannot make the folder ", quoted(path, 300)),
                        errno);
}

bool exists(const Folder& folder, const std::string& name) {
  return std::ranges::any_of(folder.entries(), [&](const FolderEntry& entry) {
    return entry.name == name;
  });
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  CANZONA_CHECK(step >= 0 && step <= kMaxStep, "step ", step);
  std::string digits = std::to_string(step);
  if (digits.size() < kStepDigits)
    digits.insert(0, kStepDigits - digits.size(), '0');
  return cat(kStepPrefix, digits);
}

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kStepPrefix.size());
  if (digits.size() < kStepDigits || digits.size() > 15) return std::nullopt;
  int64_t step = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  // One step has one name.
  return checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

bool is_name_of_store(std::string_view name) {
  return name == kLatestFile || step_of_name(name) || is_pending_name(name) ||
         marked_name(name, kAsideMark) || marked_name(name, kLeftMark);
}

bool is_pending_name(std::string_view name) {
  return marked_name(name, kPendingMark).has_value();
}

std::vector<ListedCheckpoint> list_checkpoints(const Folder& folder) {
  const std::string latest = read_latest(folder).name;
  std::vector<ListedCheckpoint> list;
  for (const FolderEntry& entry : folder.entries()) {
    const std::optional<int64_t> step = step_of_name(entry.name);
    if (step && entry.kind == FolderEntryKind::kFolder)
      list.push_back({entry.name, *step, entry.name == latest});
  }
  std::ranges::sort(list, {}, &ListedCheckpoint::step);
  return list;
}

std::vector<ListedCheckpoint> list_set_aside(const Folder& folder) {
  std::vector<ListedCheckpoint> list;
  for (const FolderEntry& entry : folder.entries())
    for (const std::string_view mark : {kLeftMark, kAsideMark})
      if (const std::optional<std::string> whole =
              marked_name(entry.name, mark);
          whole && step_of_name(*whole) &&
          entry.kind == FolderEntryKind::kFolder)
        list.push_back({entry.name, *step_of_name(*whole), false});
  std::ranges::sort(list, {}, [](const ListedCheckpoint& aside) {
    return std::pair(aside.step, aside.name);
  });
  return list;
}

std::vector<ListedCheckpoint> resume_order(const Folder& folder) {
  std::vector<ListedCheckpoint> list = list_checkpoints(folder);
  std::ranges::reverse(list);
  if (!read_latest(folder).leaves_later) return list;
  const auto latest = std::ranges::find_if(
      list, [](const ListedCheckpoint& c) { return c.is_latest; });
  if (latest != list.end()) std::rotate(list.begin(), latest, list.end());
  return list;
}

Folder open_pending(const std::string& store_path, const std::string& name,
                    FileSystem& system) {
  check_component(name, "folder of a checkpoint");
  if (!is_pending_name(name))
    throw UsageError(cat("folder of a checkpoint: ", quoted(name),
                         " is not a checkpoint that is being written"));
  return Folder::open(store_path, system).open_folder(name);
}

CheckpointStore::CheckpointStore(const std::string& path,
                                 std::string_view owner, FileSystem& system) {
  make_store_folder(path);
  const std::string file = cat(path, "/", kStoreLock);
  std::optional<FileLock> lock = FileLock::take(file, owner);
  if (!lock)
    throw UsageError(cat("the checkpoints in ", quoted(path, 300),
                         " are in use by ", printable(FileLock::holder(file)),
                         "; wait for it, stop it, or choose another folder"));
  lock_.emplace(std::move(*lock));
  folder_.emplace(Folder::open(path, system));
  clean();
}

void CheckpointStore::clean() const {
  const std::vector<FolderEntry> entries = folder_->entries();
  for (const FolderEntry& entry : entries) {
    if (is_pending_name(entry.name)) folder_->remove_all(entry);
    const std::optional<std::string> replaced =
        marked_name(entry.name, kAsideMark);
    if (!replaced) continue;
    // The process was killed between two renames: put the old one back.
    if (exists(*folder_, *replaced)) try {
        folder_->remove_all(entry);
      } catch (const Error&) {
        // It does no harm: its replacement is in place.
      }
    else
      folder_->rename(entry.name, *replaced);
  }
  // The process was killed while going back, after all later ones were set
  // aside: whatever is later from now on belongs to the run.
  const LatestLines latest = read_latest(*folder_);
  if (!latest.leaves_later) return;
  const int64_t step = *step_of_name(latest.name);
  if (!has_later(*folder_, step)) replace_latest(step);
}

void CheckpointStore::require_space(int64_t bytes, int64_t count) const {
  const int64_t free = folder_->free_bytes(), all = bytes * count;
  if (free >= all) return;
  const std::string what =
      count == 1
          ? "a checkpoint needs "
          : cat(count, " checkpoints (those to be kept, and one that is ",
                "written before the oldest is removed) of ", human_bytes(bytes),
                " each need ");
  throw StorageError(cat(what, human_bytes(all), " (", all, " bytes) in ",
                         quoted(folder_->path(), 300), ", ", human_bytes(free),
                         " (", free,
                         " bytes) are free; free some, keep fewer "
                         "checkpoints, or choose another disk"));
}

PendingCheckpoint CheckpointStore::begin(int64_t step) {
  return {*this, step, cat(checkpoint_name(step), kPendingMark, fresh_id())};
}

bool CheckpointStore::verifies(const std::string& name) {
  try {
    const CheckpointReader reader(folder_->open_folder(name));
    const auto known = verified_.find(name);
    if (known != verified_.end() && known->second == reader.manifest_hash() &&
        reader.check_files().empty())
      return true;
    if (!reader.verify().empty()) return false;
    verified_[name] = reader.manifest_hash();
    return true;
  } catch (const DataLost&) {
    return false;
  }
}

void CheckpointStore::replace_latest(int64_t step) const {
  const std::string fresh = cat(kLatestFile, kPendingMark, fresh_id());
  try {
    OutputFile file = folder_->create(fresh);
    file.write(cat(checkpoint_name(step), "\n",
                   has_later(*folder_, step) ? cat(kLeftLine, "\n") : ""));
    file.finish();
    folder_->rename(fresh, kLatestFile);
  } catch (const Error&) {
    try {
      folder_->remove_file(fresh);
    } catch (const Error&) {
      // The next store that is opened here removes it.
    }
    throw;
  }
  folder_->sync();
}

std::vector<int64_t> CheckpointStore::go_back_to(int64_t step) {
  const LatestLines latest = read_latest(*folder_);
  const bool is_named = latest.name == checkpoint_name(step);
  // This comes first, so that a run that resumes after a crash between the two
  // steps begins here as well.
  if (!is_named || latest.leaves_later != has_later(*folder_, step))
    replace_latest(step);
  std::vector<int64_t> left;
  for (const ListedCheckpoint& later : list_checkpoints(*folder_)) {
    if (later.step <= step) continue;
    folder_->rename(later.name, cat(later.name, kLeftMark, fresh_id()));
    left.push_back(later.step);
  }
  if (left.empty()) return left;
  folder_->sync();
  replace_latest(step);  // later ones now belong to the run
  return left;
}

PruneReport CheckpointStore::prune_dry(int64_t keep_last) {
  if (keep_last < 1)
    throw UsageError(cat("keep-last is ", keep_last, ", expected 1 or more"));
  PruneReport report;
  for (const ListedCheckpoint& checkpoint : resume_order(*folder_)) {
    if (std::ssize(report.kept) == keep_last)
      report.removed.push_back(checkpoint.name);
    else
      (verifies(checkpoint.name) ? report.kept : report.damaged)
          .push_back(checkpoint.name);
  }
  if (std::ssize(report.kept) == keep_last)
    for (const FolderEntry& entry : folder_->entries())
      if (marked_name(entry.name, kLeftMark))
        report.removed.push_back(entry.name);
  return report;
}

PruneReport CheckpointStore::prune(int64_t keep_last) {
  const PruneReport report = prune_dry(keep_last);
  // A later one is kept whose writer was killed before it could name it.
  const std::string latest = read_latest(*folder_).name;
  if (std::ranges::find(report.removed, latest) != report.removed.end())
    replace_latest(*step_of_name(report.kept.front()));
  for (const std::string& name : report.removed) {
    // The rename makes it disappear at once; the rest of it is never read.
    const std::string gone = cat(marked_name(name, kLeftMark).value_or(name),
                                 kPendingMark, fresh_id());
    folder_->rename(name, gone);
    folder_->remove_all({gone, FolderEntryKind::kFolder});
    verified_.erase(name);
  }
  return report;
}

PendingCheckpoint::PendingCheckpoint(CheckpointStore& store, int64_t step,
                                     std::string name)
    : store_(&store), step_(step), name_(std::move(name)) {
  side_files_.step = step;
  folder_.emplace(store.folder().make_folder(name_));
}

PendingCheckpoint::PendingCheckpoint(PendingCheckpoint&& other) noexcept
    : store_(other.store_),
      step_(other.step_),
      name_(std::exchange(other.name_, "")),
      folder_(std::move(other.folder_)),
      side_files_(std::move(other.side_files_)) {}

PendingCheckpoint::~PendingCheckpoint() {
  if (name_.empty()) return;
  folder_.reset();
  try {
    store_->folder().remove_all({name_, FolderEntryKind::kFolder});
  } catch (const Error&) {
    // The next store that is opened here removes it.
  }
}

void PendingCheckpoint::add_side_file(const std::string& name,
                                      std::string_view text) {
  if (!is_side_file_name(name))
    throw UsageError(cat("a checkpoint has no file ", quoted(name),
                         ": expected lower-case letters and '_', then .json"));
  side_files_.files.push_back(write_side_file(*folder_, name, text));
}

void PendingCheckpoint::commit(const std::vector<std::string>& records,
                               const std::string& plan_digest) {
  std::vector<Manifest> parts = {side_files_};
  for (size_t i = 0; i < records.size(); ++i) {
    parts.push_back(parse_record(records[i], cat("record of rank ", i)));
    if (parts.back().step != step_)
      throw UsageError(cat("record of rank ", i, ": it is of step ",
                           parts.back().step, ", expected ", step_));
  }
  Manifest manifest = merged(parts);
  manifest.world = std::ssize(records);
  manifest.plan_digest = plan_digest;
  check_manifest(manifest, checkpoint_name(step_));
  for (const FileRecord& file : manifest.files) {
    const int64_t bytes = folder_->open_file(file.name).size();
    if (bytes != file.bytes)
      throw DataLost(cat(quoted(file.name), " has ", bytes, " bytes, its rank ",
                         "wrote ", file.bytes));
  }
  const std::string text = manifest_text(manifest);
  if (std::ssize(text) > kMaxManifestBytes)
    throw UsageError(cat("a manifest of ", text.size(), " bytes, the limit is ",
                         kMaxManifestBytes));
  OutputFile file = folder_->create(kManifestFile);
  file.write(text);
  file.finish();
  folder_->sync();
  put_in_place();
  store_->replace_latest(step_);
  store_->verified_[checkpoint_name(step_)] = manifest_hash_of(text);
}

void PendingCheckpoint::put_in_place() {
  const Folder& store = store_->folder();
  const std::string name = checkpoint_name(step_);
  if (!exists(store, name)) {
    store.rename(name_, name);
    name_.clear();
    return store.sync();
  }
  // A folder cannot be renamed over another: the old one is moved aside first,
  // and clean() puts it back if this process dies in between.
  const std::string aside = cat(name, kAsideMark, fresh_id());
  store.rename(name, aside);
  try {
    store.rename(name_, name);
  } catch (const Error&) {
    store.rename(aside, name);
    throw;
  }
  name_.clear();
  store.sync();
  try {
    store.remove_all({aside, FolderEntryKind::kFolder});
  } catch (const Error&) {
    // The new one is in place; the next store that is opened here tries again.
  }
}

}  // namespace canzona::checkpoint

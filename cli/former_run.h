// The run that a folder holds: which files are its own, whether another one may
// take its place, and how it is removed.
//
//   if (check_former("runs/one", FolderUse::kOverwrite))
//     remove_former_run("runs/one");
//
// Nothing is removed that a run does not write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "canzona/trace/run_summary.h"

namespace canzona::cli {

// The lock of a run's folder.
inline constexpr const char* kRunLock = "canzona.lock";

// The folder of a run's checkpoints: "runs/one/ckpt".
std::string checkpoint_folder(const std::string& run);

// UsageError if this is a link to something that is not there, such as a disk
// that is not mounted: what lies behind it is not known to be gone.
void require_reachable(const std::string& folder);

// UsageError if the folder of a run has checkpoints that nothing resumes from
// by itself, which were set aside or renamed: for whoever finds no other.
void refuse_what_is_left(const std::string& run);

// The summary that a run has left; nothing if there is none. UsageError if it
// cannot be read.
std::optional<RunSummary> summary_in(const std::string& run);

// "process 4711 on node7 since …": what a lock says of this process.
std::string folder_owner();

// Says what is done about a run that a folder holds.
enum class FolderUse {
  kNew,          // it is refused
  kOverwrite,    // its files are removed, and its checkpoints
  kUnlessSaved,  // the same; refused if it has a checkpoint
  kUnlessEnded,  // the same; refused if it has come to its end, too
  kGoOn          // it stays, and goes on after some step
};

// True for names of files that a run writes to its folder, also half-written.
bool is_of_a_run(std::string_view name);

// A folder for checkpoints, or a link to one, with nothing but a lock.
bool is_empty_store(const std::string& folder);

// True if the folder holds a run that is to be removed. UsageError for what its
// use forbids and for what would keep it from being removed, or another run
// from being written.
bool check_former(const std::string& path, FolderUse use);

// UsageError if a folder lies where a file of the run is to be written.
void require_no_folders(const std::string& path);

// Removes the files of a run; a link to a folder of checkpoints stays, and so
// does what is not a run's. UsageError if that fails.
void remove_former_files(const std::string& path);
// The same with its checkpoints.
void remove_former_run(const std::string& path);

// Returns the free bytes of the disk that checkpoints go to, with what removing
// those of the former run frees there.
int64_t room_without_former(const std::string& folder);

}  // namespace canzona::cli

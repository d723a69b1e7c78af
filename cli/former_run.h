// The former run in a folder: which files belong to it, whether another run may
// replace it, and how it is removed.
//
//   if (check_former("runs/one", FolderUse::kOverwrite))
//     remove_former_run("runs/one");
//
// Only files that a run writes are removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/trace/run_summary.h"

namespace canzona::cli {

// The lock of a run's folder.
inline constexpr const char* kRunLock = "canzona.lock";

// The folder of a run's checkpoints: "runs/one/ckpt".
std::string checkpoint_folder(const std::string& run);

// Throws UsageError if this is a dangling link, for example to a disk that is
// not mounted: its target is not known to be gone.
void require_reachable(const std::string& folder);

// Throws UsageError if the folder of a run has checkpoints that were set aside
// or renamed, from which nothing resumes automatically. Call it if there are no
// others.
void refuse_what_is_left(const std::string& run);

// Returns the summary that a run has left, if there is one. Throws UsageError
// if it cannot be read.
std::optional<RunSummary> summary_in(const std::string& run);

// "process 4711 on node7 since …": how a lock describes this process.
std::string folder_owner();

// Says what to do with a run that is already in the folder.
enum class FolderUse {
  kNew,          // refuse it
  kOverwrite,    // remove its files and checkpoints
  kUnlessSaved,  // the same, but refuse if it has a checkpoint
  kUnlessEnded,  // the same, but also refuse if it has finished
  kGoOn          // keep it, and continue after some step
};

// True for names of files that a run writes to its folder, including partly
// written ones.
bool is_of_a_run(std::string_view name);

// True for a folder for checkpoints, or a link to one, that contains nothing
// but a lock.
bool is_empty_store(const std::string& folder);

// Returns true if the folder has a run that must be removed. Throws UsageError
// for what its use forbids, and if the run could not be removed or another one
// not written.
bool check_former(const std::string& path, FolderUse use);

// Throws UsageError if there is a folder where the run will write a file.
void require_no_folders(const std::string& path);

// Removes the files of a run; keeps a link to a folder of checkpoints and
// everything that is not a run's. Throws UsageError on failure.
void remove_former_files(const std::string& path);
// The same, including its checkpoints.
void remove_former_run(const std::string& path);

// Returns the free bytes on the disk of the checkpoints, including what
// removing those of the former run frees.
int64_t room_without_former(const std::string& folder);

// The lines of metrics.jsonl that a resumed run keeps.

// The lines up to a step. They end before a line that cannot be parsed, which a
// power loss may have left; a last line without newline is complete if it can
// be parsed.
struct KeptMetrics {
  struct Line {
    size_t begin = 0;  // offset in the text
    int64_t step = 0;
    bool is_evaluated = false;
  };
  std::string text;
  std::vector<Line> lines;
  int64_t left_out = 0;  // lines dropped, from the first that cannot be parsed
  int64_t odd_line = 0;  // number of that line

  // A file written by two starts may have a step twice: the later line is that
  // of the start whose checkpoint the run resumes from.
  void add(std::string_view line, const StepMetrics& read) {
    while (!lines.empty() && lines.back().step >= read.step) {
      text.resize(lines.back().begin);
      lines.pop_back();
    }
    lines.push_back({text.size(), read.step, read.eval_loss.has_value()});
    text += line;
  }
};
KeptMetrics metrics_until(const std::string& text, int64_t step);

// Returns "steps 2 to 3 are missing" for the first gap, if the lines do not
// cover every step; "" if they do. A run may have begun from another's
// checkpoint, so its first line may be of a later step.
std::string missing_steps(const KeptMetrics& kept, int64_t step);

}  // namespace canzona::cli

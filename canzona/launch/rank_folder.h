// The folder through which processes started by mpirun report to the launcher.
//
//   RankFolder folder(4);                       // the launcher
//   mpirun -n 4 canzona launch --as-rank <folder.path()> -- train …
//   int status = run_as_rank({path, rank, words});   // each of the four
//
// mpirun does not say how every rank ended, and may lose their last output. So
// each rank gets a keeper: a small process that starts the program, forwards
// its output and errors through separate pipes, and reports when it has started
// and how it has ended. A keeper stays until the launcher ends the attempt, so
// that mpirun does not kill ranks that have yet to say which rank they lost. A
// keeper does not outlive mpirun or the launcher, and the program does not
// outlive its keeper.
//
// Only the user can access the folder (mode 0700), and the destructor removes
// it. Its name, canzona-HOST-PID-…, identifies its launcher, so that the next
// one can remove the folder of one that was killed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/launch/child.h"

namespace canzona {

class RankFolder {
 public:
  explicit RankFolder(int num_ranks);
  ~RankFolder();
  RankFolder(const RankFolder&) = delete;
  RankFolder& operator=(const RankFolder&) = delete;

  const std::string& path() const { return path_; }
  std::vector<LineReader>& outputs() { return outputs_; }
  std::vector<LineReader>& errors() { return errors_; }
  LineReader& events() { return events_; }
  // Lets the keepers end.
  void release() { hold_.close(); }

 private:
  std::string path_;
  std::vector<LineReader> outputs_;
  std::vector<LineReader> errors_;
  LineReader events_;
  Descriptor events_writer_;  // keeps the pipe open
  Descriptor hold_reader_;
  Descriptor hold_;
};

// Removes folders of launchers that were killed, for this user and machine.
void remove_abandoned_folders();

// "start 2 4711", "end 2 9".
struct RankEvent {
  int rank = 0;
  bool is_end = false;
  pid_t pid = 0;
  ProcessEnd end = {};
};
// Returns nothing for any other line.
std::optional<RankEvent> parse_rank_event(std::string_view line);

struct KeeperOptions {
  std::string folder;
  int rank = 0;
  std::vector<std::string> words;
};

// Starts the keepers itself, `words` followed by what they start, each with its
// rank in the variable, and waits for them: this replaces mpirun for ranks that
// find each other on their own.
void start_keepers(int num_ranks, const std::string& variable,
                   const std::vector<std::string>& words);

// Does the work of a keeper. Returns 0 when the launcher releases it; the
// launcher knows how the program ended. Throws UsageError if there is no such
// folder.
int run_as_rank(const KeeperOptions& options);

}  // namespace canzona

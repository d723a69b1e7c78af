// A launcher hears through this folder from the processes that mpirun has
// started for it.
//
//   RankFolder folder(4);                       // the launcher
//   mpirun -n 4 canzona launch --as-rank <folder.path()> -- train …
//   int status = run_as_rank({path, rank, words});   // each of the four
//
// mpirun tells neither how every rank ended nor, always, their last words. So
// each rank gets a keeper: a small process that starts the program, sends its
// output and errors through pipes of their own, and tells when it has started
// and how it has ended. A keeper stays until the launcher ends the attempt, so
// that mpirun does not kill ranks that have yet to say whom they lost. It does
// not outlive mpirun or the launcher, nor the program its keeper.
//
// The folder is the user's alone (mode 0700) and goes with its object. Its name
// tells whose it is, canzona-HOST-PID-…, so that the next launcher can remove
// what is left by one that was killed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/launch/child.h"
#include "canzona/launch/line_reader.h"
#include "canzona/launch/process_end.h"

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
  Descriptor events_writer_;  // so that the pipe has no end
  Descriptor hold_reader_;
  Descriptor hold_;
};

// Removes folders that launchers of this user on this machine left because they
// were killed.
void remove_abandoned_folders();

// "start 2 4711", "end 2 9".
struct RankEvent {
  int rank = 0;
  bool is_end = false;
  pid_t pid = 0;
  ProcessEnd end = {};
};
// Nothing for a line that is none.
std::optional<RankEvent> parse_rank_event(std::string_view line);

struct KeeperOptions {
  std::string folder;
  int rank = 0;
  std::vector<std::string> words;
};

// Starts keepers itself, `words` followed by what they start, each with its
// number in the variable, and waits for them: what mpirun is for ranks that
// find each other by themselves.
void start_keepers(int num_ranks, const std::string& variable,
                   const std::vector<std::string>& words);

// The work of a keeper. Returns 0 when the launcher lets it go: how the program
// ended, the launcher knows. UsageError if there is no such folder.
int run_as_rank(const KeeperOptions& options);

}  // namespace canzona

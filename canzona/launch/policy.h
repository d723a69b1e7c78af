// The launcher's policy, given how ranks ended: which failed first, whether
// another attempt is worthwhile, and on how many ranks. All functions are pure.
//
//   const Cause cause = cause_of(result);
//   if (is_worth_restarting(cause)) …
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/environment.h"
#include "canzona/launch/attempt.h"

namespace canzona {

// Why an attempt ended.
struct Cause {
  int status = 0;            // to exit with
  std::vector<int> ranks;    // that failed on their own
  ProcessEnd end = {};       // of the first one
  bool is_signal = false;    // a process was killed, or stopped for good
  bool ended_early = false;  // a rank finished before the others
  int asked = 0;             // the signal that had requested the end; 0: none
  std::string words;         // "rank 2 lost (SIGKILL)"
};

// A rank that reports the loss of another (exit status 4) is the cause only if
// no other rank is. If the run was asked to end, a rank that is lost meanwhile
// does not change the status, which is that of the signal.
Cause cause_of(const AttemptResult& result);

// The same for a signal that came after the ranks were gone: exit status 130
// for SIGINT, otherwise 143.
void end_as_asked(int signal, Cause& cause);

// True after exit status 4 and for a rank that was killed, crashed, stopped for
// good or ended too early; never after a signal from the user.
bool is_worth_restarting(const Cause& cause);

// Returns the number of ranks that an attempt has not lost: neither killed by a
// signal nor stopped.
int num_remaining(const AttemptResult& result);

// Returns the pause before restart 1, 2, …: 250 ms, then doubling, at most 10
// s.
std::chrono::milliseconds pause_before(int restart);

// Returns the words of a run with `--resume auto` instead of any other
// --resume.
std::vector<std::string> resuming(const std::vector<std::string>& words);

// Returns the effective argument of --resume; "" without it.
std::string resume_wish(const std::vector<std::string>& words);

// The state of a run's folder before a restart.
struct RestartState {
  bool had_checkpoint = false;  // before the first attempt
  bool has_saved = false;       // this job has saved a new checkpoint
  // The folder was empty before the first attempt and is not now, so its
  // contents were left by this job.
  bool has_remains = false;
  bool is_empty = false;  // or not there
};
// Returns the words of the next attempt. A job that has saved resumes from its
// checkpoint. Otherwise the words stay unchanged if they, or an older
// checkpoint in the folder, determine how the run begins; only what this job
// left is overwritten. A run without either gets `--resume auto`, unless it has
// left nothing to resume.
std::vector<std::string> restart_words(const std::vector<std::string>& words,
                                       const RestartState& state);

// The last error lines of every rank, oldest first.
class ErrorLines {
 public:
  static constexpr int kMostOfRank = 64;
  struct Line {
    int rank;
    std::string words;
  };

  void add(int rank, std::string_view words);
  const std::deque<Line>& all() const { return lines_; }

 private:
  std::deque<Line> lines_;
};

// Returns the operation that a rank reports when it lost another: "all_to_all_v
// 'micro-group 7'" from "rank 1 of world: all_to_all_v #7 'micro-group 7' given
// up: …"; "" for other lines.
std::string operation_in(std::string_view line);

struct MpirunOptions {
  std::string path;
  bool is_open_mpi = true;  // otherwise MPICH
  int num_ranks = 1;
  int num_cpus = 1;
};
// Returns mpirun with its options, to be followed by the program.
std::vector<std::string> mpirun_words(const MpirunOptions& options);
// Returns the variables that mpirun needs to start as root; none for other
// users.
std::vector<std::pair<std::string, std::string>> mpirun_variables(
    bool is_open_mpi, bool is_root);

// Returns which launcher has already started this process as one of several,
// from its variables: "srun", "torchrun", "mpirun", "canzona launch"; "" if
// none has.
std::string other_launcher(const Variables& variables);

}  // namespace canzona

// The policy is what a launcher makes of how ranks ended: who failed first,
// whether another attempt is worth it, on how many ranks. Pure functions.
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

// The cause of an attempt's end.
struct Cause {
  int status = 0;            // to exit with
  std::vector<int> ranks;    // that failed by themselves
  ProcessEnd end = {};       // of the first of them
  bool is_signal = false;    // a process was killed, or stopped for good
  bool ended_early = false;  // a rank was done before the others
  int asked = 0;      // the signal that had asked for the end before; 0: none
  std::string words;  // "rank 2 lost (SIGKILL)"
};

// A rank that says that it lost another (exit status 4) is a cause only where
// nobody else is. Where the run was asked to end, a rank that was lost
// meanwhile does not change the status, which is that of the signal.
Cause cause_of(const AttemptResult& result);

// The same for a signal that came when the ranks were gone: exit status 130
// after SIGINT, else 143.
void end_as_asked(int signal, Cause& cause);

// After exit status 4, a rank that was killed, crashed, stopped for good or
// ended too early; never after a signal of the user's.
bool is_worth_restarting(const Cause& cause);

// The ranks that an attempt has not lost: those that neither were killed by a
// signal nor stopped.
int num_remaining(const AttemptResult& result);

// Before attempt 1, 2, … after the first: 250 ms, then twice as long each time,
// at most 10 s.
std::chrono::milliseconds pause_before(int restart);

// The words of a run with `--resume auto`, in place of another --resume.
std::vector<std::string> resuming(const std::vector<std::string>& words);

// Returns the word after --resume where it counts; "" without it.
std::string resume_wish(const std::vector<std::string>& words);

// The folder of a run tells this before a restart.
struct RestartState {
  bool had_checkpoint = false;  // before the first attempt
  bool has_saved = false;       // attempts have left a new checkpoint
  // The folder was empty before the first attempt and is not now: what it
  // holds was left by this job.
  bool has_remains = false;
};
// The words of the next attempt. A job that has saved resumes from what it
// saved. Otherwise the words stay as they are if they, or an older checkpoint
// in the folder, decide what the run begins with; only remains of this job
// are overwritten. A run without either gets `--resume auto`.
std::vector<std::string> restart_words(const std::vector<std::string>& words,
                                       const RestartState& state);

// The last error lines of every rank, from old to new.
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

// Returns what a rank that lost another said it was doing: "all_to_all_v
// 'micro-group 7'" out of "rank 1 of world: all_to_all_v #7 'micro-group 7'
// given up: …"; "" for other lines.
std::string operation_in(std::string_view line);

struct MpirunOptions {
  std::string path;
  bool is_open_mpi = true;  // else MPICH
  int num_ranks = 1;
  int num_cpus = 1;
};
// mpirun with its options, to be followed by the program.
std::vector<std::string> mpirun_words(const MpirunOptions& options);
// Variables that mpirun needs to start as root; none for others.
std::vector<std::pair<std::string, std::string>> mpirun_variables(
    bool is_open_mpi, bool is_root);

// Returns who has already started this process as one of several, from its
// variables: "srun", "torchrun", "mpirun", "canzona launch"; "" if nobody has.
std::string other_launcher(const Variables& variables);

}  // namespace canzona

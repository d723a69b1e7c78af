// One attempt at a run: starts its processes, passes on what they say and what
// they are sent, and returns when all are gone.
//
//   SignalQueue signals;                      // once, before anything starts
//   AttemptResult result = run_attempt(
//       {.num_ranks = 4, .words = [&](const std::string& folder) { … }},
//       signals, observer);
//
// After the first rank that ends badly the others have `grace` to end by
// themselves; then they are killed. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/launch/child.h"
#include "canzona/launch/process_end.h"

namespace canzona {

// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD as events: they are blocked
// while it lives.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return file_.number(); }
  // The next signal but SIGCHLD that has come; 0 if there is none.
  int next();
  // Waits so long, or until a signal that ends runs comes; returns that.
  int wait_for_end(std::chrono::milliseconds time);

 private:
  Descriptor file_;
};

// SIGINT, SIGTERM, or SIGHUP, which counts as SIGTERM.
bool ends_runs(int signal);

struct AttemptOptions {
  int num_ranks = 1;
  // Ranks are processes, each with a keeper (rank_folder.h); else threads of
  // one process.
  bool has_keepers = false;
  // The command; `folder` is where keepers report to, "" without them.
  std::function<std::vector<std::string>(const std::string& folder)> words;
  std::vector<std::pair<std::string, std::string>> variables = {};
  std::string starter = "mpirun";  // what starts the keepers, for messages
  std::chrono::milliseconds grace{5000};
};

class AttemptObserver {
 public:
  virtual ~AttemptObserver() = default;
  // Called first. Whoever has to wait in one of the functions below calls
  // `tend` meanwhile, so that signals are passed on; true: the run is being
  // ended, and its time to wait is over. Not to be called after run_attempt().
  virtual void on_begin(std::function<bool()> tend) { (void)tend; }
  // A line of a rank, -1 where ranks are threads.
  virtual void on_line(int rank, bool is_error, std::string_view line) = 0;
  // It was passed on to all ranks.
  virtual void on_signal(int signal) = 0;
};

struct RankEnd {
  int rank = 0;
  bool started = false;
  ProcessEnd end = {};
  double seconds = 0;  // since the attempt began; of the end
  int order = 0;       // 0: the first that ended
  // The launcher's reason for killing it: "stopped" or "hangs"; "": it did not.
  std::string killed = {};
};

struct AttemptResult {
  std::vector<RankEnd> ranks;  // by rank; one where ranks are threads
  std::string starter = "mpirun";
  ProcessEnd launcher = {};  // the starter's
  std::vector<std::string> launcher_lines = {};
  int signal = 0;  // the first that was passed on and ends runs
  double seconds = 0;
};

AttemptResult run_attempt(const AttemptOptions& options, SignalQueue& signals,
                          AttemptObserver& observer);

}  // namespace canzona

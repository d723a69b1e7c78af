// One attempt at a run: starts its processes, forwards their output and the
// signals for them, and returns when all are gone.
//
//   SignalQueue signals;                      // once, before anything starts
//   AttemptResult result = run_attempt(
//       {.num_ranks = 4, .words = [&](const std::string& folder) { … }},
//       signals, observer);
//
// After the first rank that fails, the others have `grace` to end by
// themselves; then they are killed. One thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/launch/child.h"

namespace canzona {

// Turns SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD into events: they are
// blocked while it lives.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return file_.number(); }
  // Returns the next pending signal except SIGCHLD; 0 if there is none.
  int next();
  // Waits this long, or until a signal that ends runs; returns that signal.
  int wait_for_end(std::chrono::milliseconds time);

 private:
  Descriptor file_;
};

// SIGINT, SIGTERM, or SIGHUP, which counts as SIGTERM.
bool ends_runs(int signal);

struct AttemptOptions {
  int num_ranks = 1;
  // If true, ranks are processes, each with a keeper (rank_folder.h); otherwise
  // threads of one process.
  bool has_keepers = false;
  // Returns the command; `folder` is where keepers report, "" without them.
  std::function<std::vector<std::string>(const std::string& folder)> words;
  std::vector<std::pair<std::string, std::string>> variables = {};
  std::string starter = "mpirun";  // what starts the keepers, for messages
  std::chrono::milliseconds grace{5000};
};

class AttemptObserver {
 public:
  virtual ~AttemptObserver() = default;
  // Called first. A function below that has to wait must call `tend` meanwhile,
  // so that signals are forwarded; if it returns true, the run is being ended
  // and the wait is over. It must not be called after run_attempt().
  virtual void on_begin(std::function<bool()> tend) { (void)tend; }
  // Called with a line of a rank, -1 if ranks are threads.
  virtual void on_line(int rank, bool is_error, std::string_view line) = 0;
  // Called when a signal has been forwarded to all ranks.
  virtual void on_signal(int signal) = 0;
};

struct RankEnd {
  int rank = 0;
  bool started = false;
  ProcessEnd end = {};
  double seconds = 0;  // from the attempt's start to the end
  int order = 0;       // 0 is the first that ended
  // Why the launcher killed it: "stopped" or "hangs"; "" if it did not.
  std::string killed = {};
};

struct AttemptResult {
  std::vector<RankEnd> ranks;  // by rank; a single one if ranks are threads
  std::string starter = "mpirun";
  ProcessEnd launcher = {};  // of the starter
  std::vector<std::string> launcher_lines = {};
  int signal = 0;  // the first forwarded one that ends runs
  double seconds = 0;
};

AttemptResult run_attempt(const AttemptOptions& options, SignalQueue& signals,
                          AttemptObserver& observer);

}  // namespace canzona

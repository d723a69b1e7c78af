#include "canzona/launch/attempt.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/launch/child.h"
#include "canzona/launch/rank_folder.h"

namespace canzona {
namespace {

using LaunchClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// After a process has ended, other processes may keep its pipes open for this
// long; and mpirun may take this long to end after its processes.
constexpr milliseconds kAfterEnd{500};
constexpr milliseconds kMpirunEnds{2000};
// How often things without an event are polled.
constexpr milliseconds kLookAgain{50};
constexpr milliseconds kSameSignal{200};
constexpr size_t kMostLauncherLines = 200;

sigset_t launch_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD})
    ::sigaddset(&set, signal);
  return set;
}

// True for an end that the other ranks will not survive.
bool is_bad_end(const ProcessEnd& end) {
  return end.signal != 0 ||
         (end.exit_status != 0 && end.exit_status != ExitStatus::kInterrupted &&
          end.exit_status != ExitStatus::kTerminated);
}

class Attempt {
 public:
  Attempt(const AttemptOptions& options, SignalQueue& signals,
          AttemptObserver& observer)
      : options_(options), signals_(signals), observer_(observer) {
    const int num = options.has_keepers ? options.num_ranks : 1;
    result_.starter = options.starter;
    result_.ranks.resize(static_cast<size_t>(num));
    pids_.resize(result_.ranks.size());
    for (int rank = 0; rank < num; ++rank)
      result_.ranks[static_cast<size_t>(rank)].rank =
          options.has_keepers ? rank : -1;
    if (options.has_keepers) folder_.emplace(options.num_ranks);
    child_.emplace(ChildOptions{
        .words = options.words(folder_ ? folder_->path() : std::string()),
        .variables = options.variables});
    output_ = LineReader(child_->output());
    errors_ = LineReader(child_->errors());
    if (!folder_) note_start(0, child_->pid());
  }

  AttemptResult run() {
    observer_.on_begin([this] { return tend(); });
    while (!is_over()) {
      wait_for_something();
      read_all();
      take_signals();
      if (const auto end = child_->poll()) note_child_end(*end);
      kill_the_late();
      if (folder_ && all_ended()) release_keepers();
    }
    finish();
    return std::move(result_);
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(LaunchClock::now() - begin_).count();
  }
  bool all_ended() const {
    return std::ranges::all_of(
        result_.ranks, [](const RankEnd& rank) { return rank.end.is_known(); });
  }
  bool is_over() const {
    if (!child_end_) return false;
    const bool silent = output_.descriptor() < 0 && errors_.descriptor() < 0;
    return silent || LaunchClock::now() > *child_end_ + kAfterEnd;
  }

  void wait_for_something();
  void read_all();
  void read_rank(LineReader& reader, int rank, bool is_error);
  void read_launcher(LineReader& reader);
  void take_signals();
  bool tend();
  void send_to_ranks(int signal);
  void note_start(size_t rank, pid_t pid);
  void note_end(size_t rank, const ProcessEnd& end);
  void note_child_end(const ProcessEnd& end);
  void take_event(std::string_view line);
  void kill_the_late();
  void release_keepers();
  void finish();

  const AttemptOptions& options_;
  SignalQueue& signals_;
  AttemptObserver& observer_;
  const LaunchClock::time_point begin_ = LaunchClock::now();
  AttemptResult result_;
  std::vector<pid_t> pids_;  // of programs, 0: not started
  std::optional<RankFolder> folder_;
  std::optional<Child> child_;
  LineReader output_;
  LineReader errors_;
  std::optional<LaunchClock::time_point> child_end_;
  std::optional<LaunchClock::time_point> first_bad_end_;
  std::optional<LaunchClock::time_point> released_;
  int num_ended_ = 0;
  int num_end_signals_ = 0;
  LaunchClock::time_point end_signal_time_;  // of the first
  int last_signal_ = 0;
  LaunchClock::time_point last_signal_time_;
};

void Attempt::wait_for_something() {
  std::vector<pollfd> files{{signals_.descriptor(), POLLIN, 0}};
  const auto add = [&](const LineReader& reader) {
    if (reader.descriptor() >= 0)
      files.push_back({reader.descriptor(), POLLIN, 0});
  };
  add(output_);
  add(errors_);
  if (folder_) {
    add(folder_->events());
    for (const LineReader& reader : folder_->outputs()) add(reader);
    for (const LineReader& reader : folder_->errors()) add(reader);
  }
  const bool hurries = child_end_ || first_bad_end_ || released_;
  const auto time = hurries ? kLookAgain : 20 * kLookAgain;
  ::poll(files.data(), files.size(), static_cast<int>(time.count()));
}

// Reads what ranks wrote before their end is recorded.
void Attempt::read_all() {
  if (folder_) {
    for (size_t rank = 0; rank < result_.ranks.size(); ++rank) {
      read_rank(folder_->outputs()[rank], static_cast<int>(rank), false);
      read_rank(folder_->errors()[rank], static_cast<int>(rank), true);
    }
    folder_->events().read([&](std::string_view line) { take_event(line); });
    read_launcher(output_);
    read_launcher(errors_);
  } else {
    read_rank(output_, -1, false);
    read_rank(errors_, -1, true);
  }
}

// A pipe that nobody has opened yet reads like one that everybody has closed.
void Attempt::read_rank(LineReader& reader, int rank, bool is_error) {
  const bool has_begun =
      rank < 0 || pids_[static_cast<size_t>(rank)] != 0 || child_end_;
  if (reader.descriptor() < 0 || !has_begun) return;
  reader.read(
      [&](std::string_view line) { observer_.on_line(rank, is_error, line); });
}

void Attempt::read_launcher(LineReader& reader) {
  reader.read([&](std::string_view line) {
    if (result_.launcher_lines.size() < kMostLauncherLines)
      result_.launcher_lines.emplace_back(line);
  });
}

void Attempt::take_signals() {
  while (const int signal = signals_.next()) {
    const auto now = LaunchClock::now();
    // `timeout` and shells may send the same signal twice, to a process and to
    // its group; an intended second one comes later.
    if (signal == last_signal_ && now < last_signal_time_ + kSameSignal)
      continue;
    last_signal_ = signal;
    last_signal_time_ = now;
    if (ends_runs(signal) && ++num_end_signals_ == 1) {
      result_.signal = signal;
      end_signal_time_ = now;
    }
    send_to_ranks(signal);
    observer_.on_signal(signal);
  }
}

bool Attempt::tend() {
  take_signals();
  if (num_end_signals_ == 0) return false;
  return num_end_signals_ > 1 ||
         LaunchClock::now() >= end_signal_time_ + options_.grace;
}

void Attempt::send_to_ranks(int signal) {
  for (size_t rank = 0; rank < pids_.size(); ++rank)
    if (pids_[rank] != 0 && !result_.ranks[rank].end.is_known())
      ::kill(pids_[rank], signal == SIGHUP ? SIGTERM : signal);
}

void Attempt::note_start(size_t rank, pid_t pid) {
  pids_[rank] = pid;
  result_.ranks[rank].started = true;
  // A signal may have come before there was a process to receive it.
  if (result_.signal != 0) ::kill(pid, result_.signal);
}

void Attempt::note_end(size_t rank, const ProcessEnd& end) {
  RankEnd& of = result_.ranks[rank];
  if (of.end.is_known()) return;
  of.end = end;
  of.seconds = seconds();
  of.order = num_ended_++;
  if (is_bad_end(end) && !first_bad_end_) first_bad_end_ = LaunchClock::now();
}

void Attempt::note_child_end(const ProcessEnd& end) {
  if (child_end_) return;
  child_end_ = LaunchClock::now();
  result_.launcher = end;
  if (!folder_) note_end(0, end);
}

void Attempt::take_event(std::string_view line) {
  const std::optional<RankEvent> event = parse_rank_event(line);
  if (!event || event->rank >= options_.num_ranks) return;
  const auto rank = static_cast<size_t>(event->rank);
  if (!event->is_end) return note_start(rank, event->pid);
  read_rank(folder_->outputs()[rank], event->rank, false);
  read_rank(folder_->errors()[rank], event->rank, true);
  note_end(rank, event->end);
}

void Attempt::kill_the_late() {
  const auto now = LaunchClock::now();
  if (released_ && !child_end_ && now > *released_ + kMpirunEnds)
    ::kill(-child_->pid(), SIGKILL);
  if (!first_bad_end_ || now < *first_bad_end_ + options_.grace) return;
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    RankEnd& of = result_.ranks[rank];
    if (pids_[rank] == 0 || of.end.is_known() || !of.killed.empty()) continue;
    of.killed = is_stopped_process(pids_[rank]) ? "stopped" : "hangs";
    ::kill(pids_[rank], SIGKILL);
  }
  // Ranks that never began, or whose keeper is gone, would be awaited in vain.
  if (now > *first_bad_end_ + options_.grace + kAfterEnd) release_keepers();
}

void Attempt::release_keepers() {
  if (released_) return;
  released_ = LaunchClock::now();
  if (folder_) folder_->release();
}

void Attempt::finish() {
  const auto take = [&](size_t rank, LineReader& reader, bool is_error) {
    if (!result_.ranks[rank].started) return;
    read_rank(reader, static_cast<int>(rank), is_error);
    reader.finish([&](std::string_view line) {
      observer_.on_line(static_cast<int>(rank), is_error, line);
    });
  };
  if (folder_)
    for (size_t rank = 0; rank < result_.ranks.size(); ++rank) {
      take(rank, folder_->outputs()[rank], false);
      take(rank, folder_->errors()[rank], true);
    }
  // Kills the rest of mpirun's group and everything that it has started.
  ::kill(-child_->pid(), SIGKILL);
  end_all_children();
  result_.seconds = seconds();
}

}  // namespace

SignalQueue::SignalQueue() {
  const sigset_t set = launch_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  file_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// A signal that came too late must not end the process now.
SignalQueue::~SignalQueue() {
  while (next() != 0) {
  }
  const sigset_t set = launch_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int SignalQueue::next() {
  signalfd_siginfo info;
  while (::read(file_.number(), &info, sizeof(info)) == sizeof(info))
    if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
  return 0;
}

int SignalQueue::wait_for_end(milliseconds time) {
  const auto until = LaunchClock::now() + time;
  while (true) {
    while (const int signal = next())
      if (ends_runs(signal)) return signal;
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - LaunchClock::now());
    if (left.count() <= 0) return 0;
    pollfd file{file_.number(), POLLIN, 0};
    ::poll(&file, 1, static_cast<int>(left.count()));
  }
}

bool ends_runs(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

AttemptResult run_attempt(const AttemptOptions& options, SignalQueue& signals,
                          AttemptObserver& observer) {
  return Attempt(options, signals, observer).run();
}

}  // namespace canzona

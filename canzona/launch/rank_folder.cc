#include "canzona/launch/rank_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr const char* kEventsPipe = "events";
constexpr const char* kHoldPipe = "hold";
// This variable tells a program how long mpirun lets it live after SIGTERM. The
// launcher sends that signal itself, and waits.
constexpr const char* kKillTime = "OMPI_MCA_odls_base_sigkill_timeout";
constexpr const char* kKillSeconds = "10";

std::string pipe_of(const std::string& folder, int rank, const char* stream) {
  return cat(folder, "/r", rank, ".", stream);
}

void make_pipe(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0)
    throw UsageError(cat("cannot make the pipe ", quoted(path), ": ",
                         std::generic_category().message(errno)));
}

// With O_NONBLOCK it does not wait for the other side; opening for writing then
// fails if nobody reads.
Descriptor open_pipe(const std::string& path, int how) {
  const int number = ::open(path.c_str(), how | O_CLOEXEC);
  if (number < 0)
    throw UsageError(cat("cannot open the pipe ", quoted(path), ": ",
                         std::generic_category().message(errno)));
  return Descriptor(number);
}

Descriptor new_pipe(const std::string& path) {
  make_pipe(path);
  return open_pipe(path, O_RDONLY | O_NONBLOCK);
}

// The line is short enough to be written atomically.
void tell(const Descriptor& events, const std::string& line) {
  (void)!::write(events.number(), line.data(), line.size());
}

// Blocks signals that a launcher may send; the program gets them from the
// launcher.
Descriptor block_signals() {
  sigset_t all, ended;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::sigemptyset(&ended);
  ::sigaddset(&ended, SIGCHLD);
  return Descriptor(::signalfd(-1, &ended, SFD_CLOEXEC));
}

// Returns the wait status of the child, or nothing if the launcher releases
// this keeper first.
std::optional<int> wait_for(pid_t child, const Descriptor& ended,
                            const Descriptor& hold) {
  std::array<pollfd, 2> files{
      {{ended.number(), POLLIN, 0}, {hold.number(), 0, 0}}};
  while (true) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    ::poll(files.data(), files.size(), -1);
    if (files[1].revents != 0) return std::nullopt;
    signalfd_siginfo info;
    if (files[0].revents != 0)
      (void)!::read(ended.number(), &info, sizeof(info));
  }
}

// "canzona-node7-", before the number of the process.
std::string folder_prefix() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string name(host.data());
  std::ranges::replace(name, '/', '_');
  return cat("canzona-", name, "-");
}

// Returns the number in "4711-a8Xk2q"; 0 if there is none.
pid_t process_in(std::string_view rest) {
  pid_t pid = 0;
  const char* end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(rest.data(), end, pid);
  return error == std::errc() && stop != end && *stop == '-' && pid > 0 ? pid
                                                                        : 0;
}

// True for a folder of this user whose launcher is gone: no process has its
// number, and none holds its pipe, not even one in another namespace.
bool is_abandoned(const std::filesystem::path& path, pid_t pid) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != ::geteuid())
    return false;
  if (::kill(pid, 0) == 0 || errno != ESRCH) return false;
  const Descriptor hold(
      ::open((path / kHoldPipe).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  return !hold.is_open() && errno == ENXIO;
}

}  // namespace

void remove_abandoned_folders() {
  namespace fs = std::filesystem;
  const std::string prefix = folder_prefix();
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(fs::temp_directory_path(error), error), end;
       !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const pid_t pid = process_in(std::string_view(name).substr(prefix.size()));
    if (pid != 0 && is_abandoned(at->path(), pid)) found.push_back(at->path());
  }
  for (const fs::path& path : found) fs::remove_all(path, error);
}

RankFolder::RankFolder(int num_ranks) {
  std::string name = (std::filesystem::temp_directory_path() /
                      cat(folder_prefix(), ::getpid(), "-XXXXXX"))
                         .string();
  if (::mkdtemp(name.data()) == nullptr)
    throw UsageError(cat("cannot make a folder ", quoted(name), ": ",
                         std::generic_category().message(errno)));
  path_ = name;
  for (int rank = 0; rank < num_ranks; ++rank) {
    outputs_.emplace_back(new_pipe(pipe_of(path_, rank, "out")));
    errors_.emplace_back(new_pipe(pipe_of(path_, rank, "err")));
  }
  const std::string events = cat(path_, "/", kEventsPipe);
  events_ = LineReader(new_pipe(events));
  events_writer_ = open_pipe(events, O_WRONLY | O_NONBLOCK);
  const std::string hold = cat(path_, "/", kHoldPipe);
  hold_reader_ = new_pipe(hold);
  hold_ = open_pipe(hold, O_WRONLY | O_NONBLOCK);
}

RankFolder::~RankFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::optional<RankEvent> parse_rank_event(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string kind;
  RankEvent event;
  int64_t number = 0;
  if (!(words >> kind >> event.rank >> number) || event.rank < 0) return {};
  event.is_end = kind == "end";
  if (!event.is_end && kind != "start") return {};
  if (event.is_end)
    event.end = process_end(static_cast<int>(number));
  else
    event.pid = static_cast<pid_t>(number);
  return event;
}

void start_keepers(int num_ranks, const std::string& variable,
                   const std::vector<std::string>& words) {
  std::deque<Child> keepers;
  for (int rank = 0; rank < num_ranks; ++rank)
    keepers.emplace_back(ChildOptions{
        .words = words, .variables = {{variable, cat(rank)}}, .pipes = false});
  for (Child& keeper : keepers) keeper.wait();
}

int run_as_rank(const KeeperOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rank = options.rank;
  const Descriptor ended = block_signals();
  const Descriptor hold =
      open_pipe(cat(options.folder, "/", kHoldPipe), O_RDONLY | O_NONBLOCK);
  const Descriptor events =
      open_pipe(cat(options.folder, "/", kEventsPipe), O_WRONLY | O_NONBLOCK);
  // The program writes as to any pipe: it blocks while the launcher is busy.
  for (const auto& [stream, number] :
       {std::pair("out", STDOUT_FILENO), std::pair("err", STDERR_FILENO)})
    ::dup2(open_pipe(pipe_of(options.folder, rank, stream), O_WRONLY).number(),
           number);
  Child child({.words = options.words,
               .variables = {{kKillTime, kKillSeconds}},
               .pipes = false,
               .joins_group = true});
  tell(events, cat("start ", rank, " ", child.pid(), "\n"));
  const std::optional<int> status = wait_for(child.pid(), ended, hold);
  if (!status) return 0;  // the destructor kills the child
  child.set_end(process_end(*status));
  // Readers of the program's pipes see their end.
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  tell(events, cat("end ", rank, " ", *status, "\n"));
  pollfd held{hold.number(), 0, 0};
  while (::poll(&held, 1, -1) < 0 && errno == EINTR) {
  }
  return 0;
}

}  // namespace canzona

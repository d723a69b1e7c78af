#include "canzona/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

ProcessEnd process_end(int wait_status) {
  ProcessEnd end;
  if (WIFEXITED(wait_status)) end.exit_status = WEXITSTATUS(wait_status);
  if (WIFSIGNALED(wait_status)) {
    end.signal = WTERMSIG(wait_status);
    end.dumped_core = WCOREDUMP(wait_status);
  }
  return end;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? cat("signal ", signal) : cat("SIG", name);
}

std::string to_string(const ProcessEnd& end) {
  if (end.signal != 0)
    return signal_name(end.signal) + (end.dumped_core ? " (core dumped)" : "");
  if (end.exit_status >= 0) return cat("exit status ", end.exit_status);
  return "an unknown exit status";
}

namespace {

constexpr size_t kLongestLine = size_t{64} << 10;

// Programs write "\r" before text that overwrites a line of a terminal.
std::string_view without_returns(std::string_view line) {
  while (line.starts_with('\r')) line.remove_prefix(1);
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

LineReader::LineReader(Descriptor file) : file_(std::move(file)) {
  const int flags = ::fcntl(file_.number(), F_GETFL);
  ::fcntl(file_.number(), F_SETFL, flags | O_NONBLOCK);
}

void LineReader::hand_out(const Take& take) {
  size_t begin = 0;
  while (true) {
    const size_t end = rest_.find('\n', begin);
    if (end == std::string::npos) break;
    take(without_returns(std::string_view(rest_).substr(begin, end - begin)));
    begin = end + 1;
  }
  rest_.erase(0, begin);
  if (rest_.size() < kLongestLine) return;
  take(without_returns(rest_));
  rest_.clear();
}

void LineReader::read(const Take& take) {
  std::array<char, 4096> bytes;
  while (file_.is_open()) {
    const ssize_t count = ::read(file_.number(), bytes.data(), bytes.size());
    if (count > 0) {
      rest_.append(bytes.data(), static_cast<size_t>(count));
      hand_out(take);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    finish(take);
  }
}

void LineReader::finish(const Take& take) {
  if (!rest_.empty()) take(without_returns(rest_));
  rest_.clear();
  file_.close();
}

namespace {

constexpr int kCannotExecute = 127;

[[noreturn]] void refuse_system(const char* call) {
  throw UsageError(cat("cannot start a process: ", call, ": ",
                       std::generic_category().message(errno)));
}

struct Pipe {
  Descriptor read, write;

  static Pipe open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) refuse_system("pipe2");
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }
};

bool is_named(std::string_view variable, std::string_view name) {
  return variable.size() > name.size() && variable.starts_with(name) &&
         variable[name.size()] == '=';
}

// Returns the variables of this process, overridden by those of the options.
std::vector<std::string> child_variables(const ChildOptions& options) {
  std::vector<std::string> all;
  for (const std::string& own : all_variables()) {
    bool replaced = false;
    for (const auto& [name, value] : options.variables)
      replaced = replaced || is_named(own, name);
    if (!replaced) all.push_back(own);
  }
  for (const auto& [name, value] : options.variables)
    all.push_back(cat(name, "=", value));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The child runs this between fork and exec, so it must not call anything that
// locks or allocates.
struct Beginning {
  pid_t parent;
  bool joins_group;
  int output;
  int errors;
  int failure;
  char* const* words;
  char* const* variables;

  [[noreturn]] void run() const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before prctl took effect.
    if (::getppid() != parent) ::_exit(kCannotExecute);
    if (!joins_group) ::setpgid(0, 0);
    for (int signal = 1; signal < SIGRTMIN; ++signal)
      if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    if (nothing > STDERR_FILENO) ::close(nothing);
    if (output >= 0) ::dup2(output, STDOUT_FILENO);
    if (errors >= 0) ::dup2(errors, STDERR_FILENO);
    ::execve(words[0], words, variables);
    const int code = errno;
    (void)!::write(failure, &code, sizeof(code));
    ::_exit(kCannotExecute);
  }
};

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

Child::Child(const ChildOptions& options) {
  std::vector<std::string> words = options.words;
  std::vector<std::string> variables = child_variables(options);
  const std::vector<char*> word_pointers = pointers(words);
  const std::vector<char*> variable_pointers = pointers(variables);
  Pipe failure = Pipe::open();
  Pipe output, errors;
  if (options.pipes) {
    output = Pipe::open();
    errors = Pipe::open();
  }
  const Beginning beginning{.parent = ::getpid(),
                            .joins_group = options.joins_group,
                            .output = output.write.number(),
                            .errors = errors.write.number(),
                            .failure = failure.write.number(),
                            .words = word_pointers.data(),
                            .variables = variable_pointers.data()};
  pid_ = ::fork();
  if (pid_ == 0) beginning.run();
  if (pid_ < 0) refuse_system("fork");
  // Parent and child both do it, so that it is done whichever runs first.
  if (!options.joins_group) ::setpgid(pid_, pid_);
  failure.write.close();
  int code = 0;
  ssize_t bytes = 0;
  do bytes = ::read(failure.read.number(), &code, sizeof(code));
  while (bytes < 0 && errno == EINTR);
  if (bytes == sizeof(code)) {
    wait();
    throw UsageError(cat("cannot execute ", quoted(options.words.front()), ": ",
                         std::generic_category().message(code)));
  }
  output_ = std::move(output.read);
  errors_ = std::move(errors.read);
}

Child::~Child() {
  if (poll()) return;
  ::kill(pid_, SIGKILL);
  wait();
}

std::optional<ProcessEnd> Child::poll() {
  int status = 0;
  if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    end_ = process_end(status);
  return end_;
}

ProcessEnd Child::wait() {
  int status = 0;
  while (!end_) {
    const pid_t ended = ::waitpid(pid_, &status, 0);
    if (ended == pid_) end_ = process_end(status);
    if (ended < 0 && errno != EINTR) end_ = ProcessEnd{};
  }
  return *end_;
}

std::string find_program(const std::string& name,
                         const std::string& search_path) {
  const auto is_program = [](const std::string& path) {
    return ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  for (const std::string& folder : split_text(search_path, ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_program(path)) return path;
  }
  return "";
}

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

// A killed child leaves its own children to this process, so this repeats until
// there are none.
void end_all_children() {
  while (true) {
    std::ifstream list(
        cat("/proc/self/task/", ::syscall(SYS_gettid), "/children"));
    for (pid_t child = 0; list >> child;) ::kill(child, SIGKILL);
    if (::waitpid(-1, nullptr, 0) < 0 && errno != EINTR) return;
  }
}

}  // namespace canzona

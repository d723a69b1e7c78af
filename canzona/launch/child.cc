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

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
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

// A child process that does not outlive the thread that started it.
//
//   Child child({.words = {"/usr/bin/mpirun", "-n", "4", "program"}});
//   LineReader lines(child.output());
//   …
//   if (std::optional<ProcessEnd> end = child.poll()) …
//
// The program is executed with exactly these arguments, without a shell. It
// starts in a process group of its own, so that Ctrl-C at a terminal reaches
// only its parent, with no signals blocked or ignored, and with an empty
// standard input. When the starting thread ends, for whatever reason, the
// kernel sends SIGKILL to the child.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace canzona {

// Describes how a process ended.
//
//   int status = 0;
//   ::waitpid(pid, &status, 0);
//   std::string words = to_string(process_end(status));   // "SIGKILL"
struct ProcessEnd {
  int exit_status = -1;  // -1: it did not exit
  int signal = 0;        // that ended it; 0: none
  bool dumped_core = false;

  // False if the end was not observed.
  bool is_known() const { return exit_status >= 0 || signal != 0; }
  bool is_good() const { return exit_status == 0; }
};

ProcessEnd process_end(int wait_status);

// "SIGKILL", or "signal 70" if it has no name.
std::string signal_name(int signal);

// "SIGSEGV (core dumped)", "exit status 3", "an unknown end".
std::string to_string(const ProcessEnd& end);

// A file descriptor that its destructor closes.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close();

 private:
  int number_ = -1;
};

struct ChildOptions {
  std::vector<std::string> words;  // the first one is the path of the program
  // Set for the child in addition to this process's variables.
  std::vector<std::pair<std::string, std::string>> variables = {};
  // If true, output and errors go to pipes; otherwise to those of this process.
  bool pipes = true;
  // If true, it stays in its parent's process group and gets the same signals.
  bool joins_group = false;
};

class Child {
 public:
  // Throws UsageError if the program cannot be executed.
  explicit Child(const ChildOptions& options);
  // Kills the child if it has not ended.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // The read ends of the pipes, which the caller takes over.
  Descriptor output() { return std::move(output_); }
  Descriptor errors() { return std::move(errors_); }

  // Returns how it ended, once it has.
  std::optional<ProcessEnd> poll();
  ProcessEnd wait();
  // Records the result of waitpid(), for a caller that reaps all children at
  // once.
  void set_end(const ProcessEnd& end) { end_ = end; }

 private:
  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
  Descriptor output_;
  Descriptor errors_;
};

// Returns the path of a program in the folders of `search_path`
// ("/usr/bin:/bin"), or `name` itself if it contains a slash; empty if there is
// none.
std::string find_program(const std::string& name,
                         const std::string& search_path);

// Makes this process the parent of descendants whose parents end.
void adopt_orphans();
// Kills all children of this process and their descendants, and returns when
// they are gone. Requires adopt_orphans().
void end_all_children();

// Reads lines from a pipe without blocking.
//
//   LineReader reader(child.output());
//   while (poll(…)) reader.read([](std::string_view line) { … });
//
// A line that is too long is delivered in pieces. One thread at a time.
class LineReader {
 public:
  using Take = std::function<void(std::string_view line)>;

  LineReader() = default;
  explicit LineReader(Descriptor file);

  // -1 once all writers are gone.
  int descriptor() const { return file_.number(); }
  // Delivers the lines that have arrived and, at the end of the file, the rest.
  void read(const Take& take);
  // Delivers the rest and closes the file.
  void finish(const Take& take);

 private:
  void hand_out(const Take& take);

  Descriptor file_;
  std::string rest_;
};

}  // namespace canzona

// A child process that does not outlive the thread that started it.
//
//   Child child({.words = {"/usr/bin/mpirun", "-n", "4", "program"}});
//   LineReader lines(child.output());
//   …
//   if (std::optional<ProcessEnd> end = child.poll()) …
//
// The program is executed with its words as they are: no shell sees them. It
// starts in a process group of its own, so that Ctrl-C at a terminal reaches
// only whoever started it; with no signals blocked or ignored; with an empty
// standard input. When the starting thread ends, however it does, the kernel
// sends SIGKILL to the child.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "canzona/launch/process_end.h"

namespace canzona {

// A file descriptor that is closed with its object.
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
  // Set for the child beside the variables of this process.
  std::vector<std::pair<std::string, std::string>> variables = {};
  // Its output and errors go to pipes; else where those of this process go.
  bool pipes = true;
  // It shares the process group of its parent, for whom signals are meant.
  bool joins_group = false;
};

class Child {
 public:
  // UsageError if the program cannot be executed.
  explicit Child(const ChildOptions& options);
  // Kills it, if it has not ended.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // The ends of the pipes to read from, which become the caller's.
  Descriptor output() { return std::move(output_); }
  Descriptor errors() { return std::move(errors_); }

  // Its end, once it has ended.
  std::optional<ProcessEnd> poll();
  ProcessEnd wait();
  // Notes what waitpid() has said of it, for a caller that reaps all children
  // at once.
  void set_end(const ProcessEnd& end) { end_ = end; }

 private:
  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
  Descriptor output_;
  Descriptor errors_;
};

// The path of a program in the folders of `search_path` ("/usr/bin:/bin"), or
// `name` itself if it has a slash; empty if there is none.
std::string find_program(const std::string& name,
                         const std::string& search_path);

// Descendants whose parents end become children of this process.
void adopt_orphans();
// Kills all children of this process, and theirs, and returns when they are
// gone. Only for a process that has adopted orphans.
void end_all_children();

}  // namespace canzona

// The whole command line: root options, verbs, and error messages.
//
//   CommandLine line;
//   line.parse({"plan", "--model", "qwen3-8b"});   // throws UsageError
//   Outcome outcome = line.run(output);
//
// It cannot be copied or moved, because options point into it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace canzona::cli {

// Prints description, usage, options by group, verbs, and the footer as given.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Throws UsageError for arguments that cannot be understood; it names the
  // nearest known word.
  void parse(std::vector<std::string> arguments);

  // Runs the verb, or prints the help or version that was requested.
  Outcome run(const Output& out) const;

  // An error of the library as the user has to read it (with_flags.h).
  std::string with_flags(const std::string& message) const;

  const std::string& color() const { return color_; }
  bool quiet() const { return quiet_; }

 private:
  CLI::App root_;
  std::vector<Verb> verbs_;
  std::string color_ = "auto";
  bool quiet_ = false;
  std::string page_;  // help or version, printed instead of running a verb
};

}  // namespace canzona::cli

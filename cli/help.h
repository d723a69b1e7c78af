// Formats --help, on every level.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace canzona::cli {

// Prints description, usage, options by group, verbs, and the footer as given.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace canzona::cli

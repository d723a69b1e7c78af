// Shows errors of the library to the user of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace canzona::cli {

// The library knows options by their names alone: "teams 3: …; try zero=all".
// Returns the message with the flags of `app`, the verb that the user named:
// "--teams 3: …; try --zero all"; "try batch.micro=2" gets its --set. Words in
// quotes, and values that the user gave, such as a file called "teams=4", stay
// as they are.
std::string with_flags(const CLI::App& app, const std::string& message);

}  // namespace canzona::cli

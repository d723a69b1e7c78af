// The part of the program that computes. no_compute.cc takes its place in a
// program that only plans.
#pragma once

namespace canzona::cli {

// First in main, with main's argv: the process may be replaced by itself.
void begin_compute(char** argv);

}  // namespace canzona::cli

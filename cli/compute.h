// The part of the program that computes. no_compute.cc takes its place in a
// program that only plans.
#pragma once

namespace canzona::cli {

// First in main, with main's argv: the process may be replaced by itself.
void begin_compute(char** argv);

// Last in main: gives back the status, unless other processes were lost, whose
// end nobody may wait for; then the process ends here.
int end_compute(int status);

}  // namespace canzona::cli

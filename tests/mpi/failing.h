// Lets a rank fail, and prints what it says of another that has: for the
// programs of this folder.
//
//   int main(int argc, char** argv) {
//     return canzona::run_rank({}, [&](MpiSession& session) { … });
//   }
//
//   faults   throw, exit, _exit, abort, kill, stop, pause (a stop of 300 ms)
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "canzona/comm/mpi/mpi_session.h"

namespace canzona::tests {

// Returns if the fault is none of these, or a pause.
void fail(const std::string& fault);

// Records the beginning of an operation whose duration is reported later. Any
// thread may call it.
void note_beginning();

// Runs the function in a session and says how it ended: the exit status is 0, 4
// if a peer is lost, 2 for UsageError and else 1. Failures do not return. The
// session's end may take `time`.
int run_rank(const MpiOptions& options,
             const std::function<void(MpiSession&)>& function,
             std::chrono::milliseconds time = std::chrono::minutes(1));

}  // namespace canzona::tests

#include "tests/mpi/failing.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::tests {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::atomic<Clock::time_point> began;

// A stopped process cannot wake itself, so a child does.
void stop_for(milliseconds time) {
  if (fork() == 0) {
    std::this_thread::sleep_for(time);
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

int run_and_report(MpiSession& session,
                   const std::function<void(MpiSession&)>& function,
                   milliseconds time_to_end) {
  const std::string who = cat("rank ", session.rank(), " says: ");
  try {
    function(session);
    session.finish(time_to_end);
    std::cout << who << "all done\n";
    return 0;
  } catch (const PeerLost& error) {
    session.abort(error.what());
    const auto time =
        std::chrono::duration_cast<milliseconds>(Clock::now() - began.load());
    std::cout << who << "lost: " << error.what() << "\n"
              << "after " << time.count() << " ms\n";
    return 4;
  } catch (const UsageError& error) {
    session.abort(error.what());
    std::cout << who << "refused: " << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    session.abort(who + error.what());
    std::cout << who << "failed: " << error.what() << "\n";
    return 1;
  }
}

}  // namespace

void fail(const std::string& fault) {
  if (fault == "throw") throw NumericalError("no more paper");
  if (fault == "exit") std::exit(0);
  if (fault == "_exit") _exit(0);
  if (fault == "abort") std::abort();
  // raise() signals this thread, which stops here; the other threads die with
  // the process.
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "pause") stop_for(milliseconds(300));
}

void note_beginning() { began = Clock::now(); }

int run_rank(const MpiOptions& options,
             const std::function<void(MpiSession&)>& function,
             milliseconds time) {
  MpiSession session(options);
  const int status = run_and_report(session, function, time);
  if (status != 0) exit_at_once(status);
  return status;
}

}  // namespace canzona::tests

// The program. Only this file knows exit codes.
#include <csignal>
#include <new>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "cli/command_line.h"
#include "cli/environment.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

enum ExitCode {
  kExitDone = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitDataLost = 3,
  kExitPeerLost = 4,
  kExitNumerical = 5,
  kExitStorage = 6,
  kExitInterrupted = 130,  // as shells count signals: 128 and SIGINT
  kExitTerminated = 143,   // 128 and SIGTERM
};

ExitCode exit_code_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return kExitDone;
    case Outcome::kFailed:
      return kExitFailed;
    case Outcome::kDiverged:
      return kExitNumerical;
    case Outcome::kInterrupted:
      return kExitInterrupted;
    case Outcome::kTerminated:
      return kExitTerminated;
  }
  return kExitFailed;
}

// Messages may quote files: nothing in them may reach the terminal as a
// command.
void report(const Output& out, const std::string& message,
            const std::vector<std::string>& lines = {}) {
  std::vector<std::string> below;
  for (const std::string& line : split_text(message, '\n'))
    below.push_back(printable(line, 2000));
  const std::string first = below.front();
  below.erase(below.begin());
  for (const std::string& line : lines) below.push_back(printable(line, 2000));
  out.error(first, below);
}

// Runs `work` and turns what it throws into an exit code.
template <class Work>
int guarded(const Output& out, const Work& work) {
  try {
    return exit_code_of(work());
  } catch (const ClosedPipe&) {
    return kExitDone;
  } catch (const ViolationsFound& found) {
    report(out, found.what(), found.violations());
    return kExitFailed;
  } catch (const UsageError& error) {
    report(out, error.what());
    return kExitUsage;
  } catch (const StorageError& error) {
    report(out, error.what());
    return kExitStorage;
  } catch (const DataLost& error) {
    report(out, error.what());
    return kExitDataLost;
  } catch (const NumericalError& error) {
    report(out, error.what());
    return kExitNumerical;
  } catch (const PeerLost& error) {
    report(out, error.what());
    return kExitPeerLost;
  } catch (const std::bad_alloc&) {
    report(out, "out of memory");
  } catch (const std::exception& error) {
    report(out, cat("internal: ", error.what(), "; please report this"));
  }
  return kExitFailed;
}

int run(const std::vector<std::string>& arguments) {
  const Environment environment = read_environment();
  const Output plain(environment, ColorChoice::kAuto, false);
  CommandLine line;
  ColorChoice color = ColorChoice::kAuto;
  const int understood = guarded(plain, [&] {
    line.parse(arguments);
    color = parse_color(line.color());
    return Outcome::kDone;
  });
  if (understood != kExitDone) return understood;
  const Output out(environment, color, line.quiet());
  return guarded(out, [&] { return line.run(out); });
}

}  // namespace
}  // namespace canzona::cli

int main(int argc, char** argv) {
  canzona::cli::begin_compute(argv);
  // A closed pipe shall be an error of write(), not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // So shall a file that reaches the limit of its size.
  std::signal(SIGXFSZ, SIG_IGN);
  return canzona::cli::end_compute(canzona::cli::run({argv + 1, argv + argc}));
}

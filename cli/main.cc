// The program. Only this file turns outcomes and errors into exit codes.
#include <csignal>
#include <filesystem>
#include <new>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "cli/command_line.h"
#include "cli/output.h"
#include "cli/plan_input.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

int exit_status_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return ExitStatus::kDone;
    case Outcome::kFailed:
      return ExitStatus::kFailed;
    case Outcome::kDiverged:
      return ExitStatus::kNumerical;
    case Outcome::kInterrupted:
      return ExitStatus::kInterrupted;
    case Outcome::kTerminated:
      return ExitStatus::kTerminated;
  }
  return ExitStatus::kFailed;
}

// Messages may quote files, so they are made safe for the terminal.
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
    return exit_status_of(work());
  } catch (const ClosedPipe&) {
    return ExitStatus::kDone;
  } catch (const ViolationsFound& found) {
    report(out, found.what(), found.violations());
    return ExitStatus::kFailed;
  } catch (const UsageError& error) {
    report(out, error.what());
    return ExitStatus::kUsage;
  } catch (const StorageError& error) {
    report(out, error.what());
    return ExitStatus::kStorage;
  } catch (const DataLost& error) {
    report(out, error.what());
    return ExitStatus::kDataLost;
  } catch (const NumericalError& error) {
    report(out, error.what());
    return ExitStatus::kNumerical;
  } catch (const PeerLost& error) {
    report(out, error.what());
    return ExitStatus::kPeerLost;
  } catch (const std::filesystem::filesystem_error& error) {
    report(out, cat("cannot access ", quoted(error.path1().string(), 300), ": ",
                    error.code().message()));
    return ExitStatus::kUsage;
  } catch (const std::bad_alloc&) {
    report(out, "out of memory");
  } catch (const std::exception& error) {
    report(out, cat("internal: ", error.what(), "; please report this"));
  }
  return ExitStatus::kFailed;
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
  if (understood != ExitStatus::kDone) return understood;
  const Output out(environment, color, line.quiet());
  return guarded(out, [&] {
    try {
      return line.run(out);
    } catch (const UsageError& error) {
      throw UsageError(line.with_flags(error.what()));
    }
  });
}

}  // namespace
}  // namespace canzona::cli

int main(int argc, char** argv) {
  canzona::cli::begin_compute(argv);
  // A closed pipe must be an error of write(), not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // So must a file that reaches its size limit.
  std::signal(SIGXFSZ, SIG_IGN);
  return canzona::cli::end_compute(canzona::cli::run({argv + 1, argv + argc}));
}

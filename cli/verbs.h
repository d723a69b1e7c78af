// The verbs of the program. A verb declares its options on the command line and
// carries itself out when it was named.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "cli/output.h"

namespace canzona::cli {

// kFailed: the answer is "no" (a plan that is not sound), and was printed.
// kDiverged: so are numbers that are not finite. kInterrupted, kTerminated: the
// user, or the system, asked for the end, and it was an orderly one. The last
// four are those of a run that `canzona launch` has watched; it has said why.
enum class Outcome {
  kDone,
  kFailed,
  kDiverged,
  kInterrupted,
  kTerminated,
  kRefused,
  kDataLost,
  kPeerLost,
  kNoStorage
};

struct Verb {
  CLI::App* app = nullptr;  // owned by the root
  std::function<Outcome(const Output&)> run;
};

Verb add_plan(CLI::App& root);
Verb add_explain(CLI::App& root);
Verb add_compare(CLI::App& root);
Verb add_simulate(CLI::App& root);
Verb add_models(CLI::App& root);
Verb add_rules(CLI::App& root);
Verb add_validate(CLI::App& root);
Verb add_config(CLI::App& root);
Verb add_train(CLI::App& root);
Verb add_launch(CLI::App& root);
Verb add_report(CLI::App& root);
Verb add_sample(CLI::App& root);
Verb add_eval(CLI::App& root);
Verb add_ckpt(CLI::App& root);
Verb add_bench(CLI::App& root);
Verb add_calibrate(CLI::App& root);
Verb add_doctor(CLI::App& root);
Verb add_completion(CLI::App& root);
Verb add_man(CLI::App& root);
// The verb below `canzona rules`.
Verb add_rules_check(CLI::App& rules);

// These compute: the verbs from add_config to add_doctor but add_report, the
// check of rules, and these two. no_compute.cc takes their place in a program
// that only plans.

// First in main, with main's argv: the process may be replaced by itself.
void begin_compute(char** argv);

// Last in main: gives back the status, unless other processes were lost, whose
// end nobody may wait for; then the process ends here.
int end_compute(int status);

}  // namespace canzona::cli

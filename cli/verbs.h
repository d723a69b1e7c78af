// The verbs of the program. A verb is declared with its options and runs when
// it was named.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/output.h"

namespace canzona::cli {

// kFailed: the answer, which was printed, is "no" (a plan that is not valid).
// kDiverged: numbers became not finite, which was printed, too. kInterrupted,
// kTerminated: the user or the system requested the end, and it was orderly.
enum class Outcome { kDone, kFailed, kDiverged, kInterrupted, kTerminated };

struct Verb {
  CLI::App* app = nullptr;  // owned by the root
  std::function<Outcome(const Output&)> run;
};

// What a verb is: its name, what help says of it, its options, and what it
// does with their values, which have been checked before.
//
//   return add_verb(root, {.name = "eval",
//                          .description = "loss and perplexity of a model",
//                          .options = options_of(*flags),
//                          .footer = kEvalExamples,
//                          .run = [flags](const Output& out) { … }});
struct VerbDeclaration {
  std::string name;
  std::string description;
  OptionRows options = {};
  std::string footer = {};
  // Add verbs below this one, which run instead of it when they are named.
  std::vector<std::function<Verb(CLI::App&)>> below = {};
  std::function<Outcome(const Output&)> run = {};
};
Verb add_verb(CLI::App& above, const VerbDeclaration& verb);

// The same for flags beside which the file of the verb has options_of(Flags&)
// and run(const Flags&, const Output&).
template <class Flags>
Verb add_verb_of(CLI::App& above, VerbDeclaration verb) {
  auto flags = std::make_shared<Flags>();
  verb.options = options_of(*flags);
  verb.run = [flags](const Output& out) { return run(*flags, out); };
  return add_verb(above, verb);
}

Verb add_plan(CLI::App& root);
Verb add_explain(CLI::App& root);
Verb add_compare(CLI::App& root);
Verb add_simulate(CLI::App& root);
Verb add_models(CLI::App& root);
Verb add_rules(CLI::App& root);
Verb add_validate(CLI::App& root);
Verb add_config(CLI::App& root);
Verb add_train(CLI::App& root);
Verb add_report(CLI::App& root);
Verb add_sample(CLI::App& root);
Verb add_eval(CLI::App& root);
Verb add_ckpt(CLI::App& root);
Verb add_bench(CLI::App& root);
Verb add_calibrate(CLI::App& root);
Verb add_doctor(CLI::App& root);
Verb add_completion(CLI::App& root);

// These compute: the verbs from add_config to add_doctor except add_report, and
// the three functions below. no_compute.cc replaces them in a program that only
// plans.

// Must be called first in main, with main's argv: the process may re-execute
// itself.
void begin_compute(char** argv);

// Must be called last in main: returns the status, unless other processes were
// lost and must not be waited for; then the process ends here.
int end_compute(int status);

// Says why `canzona train --model` refuses this model; "" if it trains it.
std::string why_untrained(const std::string& model);

}  // namespace canzona::cli

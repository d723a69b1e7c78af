// Replaces the verbs that compute in a program that only plans: they report
// that.
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

Verb absent(CLI::App& root, const char* name, const char* description) {
  CLI::App* app = root.add_subcommand(name, description);
  app->allow_extras();
  return {app, [name](const Output&) -> Outcome {
            throw UsageError(cat("canzona ", name,
                                 ": this program was built to plan only; "
                                 "build it without CANZONA_PLAN_ONLY"));
          }};
}

}  // namespace

void begin_compute(char**) {}
int end_compute(int status) { return status; }
std::string why_untrained(const std::string&) {
  return "this program was built to plan only";
}

Verb add_config(CLI::App& root) {
  return absent(root, "config",
                "show the settings of a training run (not in this build)");
}
Verb add_train(CLI::App& root) {
  return absent(root, "train", "train a language model (not in this build)");
}
Verb add_sample(CLI::App& root) {
  return absent(root, "sample",
                "let a model continue a text (not in this build)");
}
Verb add_eval(CLI::App& root) {
  return absent(root, "eval",
                "compute the loss of a model (not in this build)");
}
Verb add_ckpt(CLI::App& root) {
  return absent(root, "ckpt", "inspect checkpoints (not in this build)");
}
Verb add_bench(CLI::App& root) {
  return absent(root, "bench",
                "time rules, steps and collectives (not in this build)");
}
Verb add_calibrate(CLI::App& root) {
  return absent(root, "calibrate", "measure a cost table (not in this build)");
}
Verb add_doctor(CLI::App& root) {
  return absent(root, "doctor", "check this machine (not in this build)");
}

}  // namespace canzona::cli

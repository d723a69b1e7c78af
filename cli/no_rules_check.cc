// `canzona rules check` in a build of the planner alone.
#include <memory>

#include "canzona/base/error.h"
#include "cli/rules.h"

namespace canzona::cli {

Verb add_rules_check(CLI::App& rules) {
  CLI::App* app = rules.add_subcommand(
      "check", "replay fixtures (not in this build of the planner alone)");
  auto files = std::make_shared<std::vector<std::string>>();
  app->add_option("FILE", *files, "safetensors files, or folders of them");
  return {app, [files](const Output&) -> Outcome {
            throw UsageError(
                "rules check: this is a build of the planner alone; build "
                "without CANZONA_PLAN_ONLY to check arithmetic");
          }};
}

}  // namespace canzona::cli

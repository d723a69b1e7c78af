// `canzona validate`: is this plan sound?
#include "canzona/plan/validate/validate.h"

#include <memory>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "cli/plan_input.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kValidateExamples =
    R"(Examples:
  canzona validate plan.json
  canzona validate plan.json --json

Checked are: the digest; that every element of every tensor has one place in each tp plane, every
matrix one owner or team; that routes are exact both ways; that budgets hold. All violations are
listed. The exit status is 0 for a sound plan, 1 for one that is not, 2 for a file that is no plan.
)";

struct ValidateFlags {
  std::string path;
  bool json = false;
};

std::string as_json(const PlanFile& file) {
  JsonWriter out(2);
  out.begin_object().field("sound", file.violations.empty());
  if (!file.plan.digest.empty()) out.field("digest", file.plan.digest);
  out.member("violations").values(file.violations).end_object();
  return out.take() + "\n";
}

std::string as_text(const std::string& path, const PlanFile& file,
                    const Ink& ink) {
  if (file.violations.empty())
    return cat(printable(path), ": ", ink(Tone::kGood, "sound"), " (",
               file.plan.matrices.size(), " matrices on ",
               file.plan.mesh.world(), " ranks, digest ", file.plan.digest,
               ")\n");
  std::string out = cat(printable(path), ": ", ink(Tone::kPoor, "not sound"),
                        ", ", file.violations.size(), " violation",
                        file.violations.size() == 1 ? "" : "s", "\n");
  for (const std::string& violation : file.violations)
    out += cat("  ", printable(violation, 1000), "\n");
  return out;
}

Outcome run(const ValidateFlags& arguments, const Output& out) {
  const PlanFile file = read_plan(arguments.path);
  out.result(arguments.json ? as_json(file)
                            : as_text(arguments.path, file, out.ink()));
  return file.violations.empty() ? Outcome::kDone : Outcome::kFailed;
}

}  // namespace

Verb add_validate(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("validate", "check a plan against its promises");
  auto arguments = std::make_shared<ValidateFlags>();
  app->add_option("PLAN", arguments->path,
                  "a file that `canzona plan -o` wrote")
      ->required();
  app->add_flag("--json", arguments->json,
                "print one JSON object instead of text");
  app->footer(kValidateExamples);
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli

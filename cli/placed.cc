#include "cli/placed.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/placed/make_placed_plan.h"
#include "canzona/plan/placed/placed_json.h"
#include "canzona/plan/placed/validate_placed.h"
#include "canzona/report/placed_view.h"
#include "cli/errors.h"
#include "cli/plan_input.h"

namespace canzona::cli {
namespace {

constexpr int64_t kMaxPlacedFile = int64_t{1} << 29;
constexpr int64_t kMaxPlacedFileValues = 30'000'000;

// The options allowed beside the file, which says everything else.
constexpr std::array<const char*, 5> kBesidePlaced = {
    "--placed", "--cost", "--output", "--html", "--json"};

void refuse_other_options(const PlanArguments& arguments) {
  for (const CLI::Option* option : arguments.app->get_options()) {
    const bool fits =
        std::any_of(kBesidePlaced.begin(), kBesidePlaced.end(),
                    [&](const char* name) { return option->check_name(name); });
    if (option->count() > 0 && !fits)
      throw UsageError(cat("--placed ", quoted(arguments.placed), ": ",
                           option->get_name(),
                           " does not go with it: the file says what is "
                           "planned, on which ranks and by which rules"));
  }
}

// True if the text says so itself, however broken it is.
bool claims_to_be_placed(const std::string& text) {
  if (text.find(kPlacedPlanFormat) == std::string::npos) return false;
  try {
    return is_placed_plan(
        parse_json(text, {.what = "plan",
                          .max_bytes = kMaxPlacedFile,
                          .max_values = kMaxPlacedFileValues}));
  } catch (const UsageError&) {
    return false;
  }
}

// Adds the file's name, which errors in the request's contents do not have.
PlacedPlan planned(const std::string& path, const CostTable* table) {
  PlacedRequest request =
      read_placed(read_file(path, kMaxPlacedFile, "placed storage"), path);
  try {
    return make_placed_plan(std::move(request), table);
  } catch (const UsageError& error) {
    throw UsageError(cat(path, ": ", error.what()));
  }
}

}  // namespace

Outcome plan_placed(const PlanArguments& arguments, const Output& out) {
  refuse_other_options(arguments);
  std::optional<CostTable> table;
  if (!arguments.cost.empty()) table = read_cost_table(arguments.cost);
  const auto start = std::chrono::steady_clock::now();
  const PlacedPlan plan = planned(arguments.placed, table ? &*table : nullptr);
  std::vector<std::string> violations = validate(plan);
  if (!violations.empty())
    throw ViolationsFound("the plan fails validation", std::move(violations));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  // Files come first, because the reader of the text may stop early.
  if (!arguments.output.empty())
    out.save(arguments.output, placed_plan_to_json(plan), "plan");
  if (!arguments.html.empty())
    out.save(arguments.html, placed_html(plan), "report");
  out.result(arguments.json ? placed_json(plan) : placed_text(plan, out.ink()));
  out.note(cat("planned and validated in ", human_seconds(seconds)));
  return Outcome::kDone;
}

std::optional<PlacedPlanFile> read_placed_plan(const std::string& path) {
  const std::string text = read_file(path, int64_t{1} << 30, "plan");
  if (!claims_to_be_placed(text)) return std::nullopt;
  PlacedPlanFile file;
  try {
    file.plan = placed_plan_from_json(text, path).plan;
  } catch (const UsageError& error) {
    file.violations.emplace_back(error.what());
    return file;
  }
  file.violations = validate(file.plan);
  return file;
}

}  // namespace canzona::cli

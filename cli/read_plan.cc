#include "cli/read_plan.h"

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::cli {
namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;

constexpr int64_t kMaxValues = 100'000'000;

// A plan by its own words, however broken.
bool claims_to_be_plan(const std::string& text) {
  try {
    const Json json = parse_json(
        text,
        {.what = "plan", .max_bytes = kMaxPlanBytes, .max_values = kMaxValues});
    return json.is_object() && json.value("format", Json()) == "canzona.plan";
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace

PlanFile read_plan(const std::string& path) {
  const std::string text = read_file(path, kMaxPlanBytes, "plan");
  ReadPlan read;
  PlanFile file;
  try {
    read = plan_from_json(text, path);
  } catch (const UsageError& error) {
    if (!claims_to_be_plan(text)) throw;
    file.violations.emplace_back(error.what());
    return file;
  }
  if (!read.digest_matches)
    file.violations.push_back(
        cat("digest: the file says ", printable(read.plan.digest),
            ", its contents give ", digest_of(read.plan)));
  for (std::string& violation : validate(read.plan))
    file.violations.push_back(std::move(violation));
  file.plan = std::move(read.plan);
  return file;
}

}  // namespace canzona::cli

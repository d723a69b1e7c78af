// plan.json: the same plan gives the same bytes everywhere. Schema:
// docs/plan.md.
//
//   std::string text = plan_to_json(plan);
//   ReadPlan read = plan_from_json(text, "plan.json");   // UsageError
//   if (!read.digest_matches) …   // a value was changed
//   std::vector<std::string> violations = validate(read.plan);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/base/json_reader.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"

namespace canzona {

// Names and limits that the writer and the reader of plan.json share.
inline constexpr const char* kPlanFormat = "canzona.plan";
// A plan that may have teams is written as version 2, whose options and bounds
// mention them. All others are written as version 1, so that older programs can
// read them.
inline constexpr int64_t kPlanVersion = 1;
inline constexpr int64_t kTeamPlanVersion = 2;

inline int64_t version_of(const PlanOptions& options) {
  return options.teams == kTeamsOff ? kPlanVersion : kTeamPlanVersion;
}

inline constexpr EnumNames<Traffic, 4> kTrafficNames{
    {{Traffic::kReduceScatter, "reduce_scatter"},
     {Traffic::kPadded, "padded"},
     {Traffic::kBroadcast, "broadcast"},
     {Traffic::kAllReduce, "all_reduce"}}};

inline std::string_view traffic_name(Traffic traffic) {
  return name_of(kTrafficNames, traffic);
}

// A digest identifies a plan's values. A file must therefore not hold any
// others.

// Throws UsageError, naming the place, if the values of a file (`text`, parsed
// as `root`) differ from `canonical`, the plan as this program would write it.
// White space, the order of members and the spelling of numbers may differ.
void require_canonical(const Json& root, std::string_view text,
                       std::string canonical, const JsonLimits& limits);

std::string plan_to_json(const Plan& plan);

// The digest that plan_to_json would store.
std::string digest_of(const Plan& plan);

// Reads what plan_to_json wrote. Throws UsageError if the text is not a plan.
// If the digest does not match the contents, returns the plan with
// `digest_matches` false.
struct ReadPlan {
  Plan plan;
  bool digest_matches = true;
};
ReadPlan plan_from_json(std::string_view text, const std::string& where);

// Writes the members of a cost basis into the open JSON object.
void write_cost_basis(const CostBasis& basis, JsonWriter& out);
// Writes links as the next value.
void write_links(const Links& links, JsonWriter& out);

}  // namespace canzona

// plan.json: the same plan gives the same bytes everywhere. Schema:
// docs/plan.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/base/enum_names.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"

namespace canzona {

// Names and limits that the writer and the reader of plan.json share.

inline constexpr const char* kPlanFormat = "canzona.plan";
// A plan that may have teams is written as version 2, which says so in its
// options and has their bound. All others are version 1, as ever, so that
// older programs read them.
inline constexpr int64_t kPlanVersion = 1;
inline constexpr int64_t kTeamPlanVersion = 2;

inline int64_t version_of(const PlanOptions& options) {
  return options.teams == kTeamsOff && options.exchange != ExchangeBy::kStrips
             ? kPlanVersion
             : kTeamPlanVersion;
}

inline constexpr EnumNames<Traffic, 4> kTrafficNames{
    {{Traffic::kReduceScatter, "reduce_scatter"},
     {Traffic::kPadded, "padded"},
     {Traffic::kBroadcast, "broadcast"},
     {Traffic::kAllReduce, "all_reduce"}}};

inline std::string_view traffic_name(Traffic traffic) {
  return name_of(kTrafficNames, traffic);
}

// A digest names a plan's values; it does not name what a file says beside
// them.

// UsageError names the place where the values of a file, `text` and `root` that
// was read from it, are others than in `canonical`, what the plan is written
// as. White space, the order of members and how a number is spelled are free.
void require_canonical(const Json& root, std::string_view text,
                       std::string canonical, const JsonLimits& limits);

std::string plan_to_json(const Plan& plan);

// The digest that plan_to_json would store.
std::string digest_of(const Plan& plan);

// Reads what plan_to_json wrote. UsageError for what is no plan; a plan whose
// digest does not fit its contents is returned with `digest_matches` false.
struct ReadPlan {
  Plan plan;
  bool digest_matches = true;
};
ReadPlan plan_from_json(std::string_view text, const std::string& where);

// Writes the members of a cost's basis into the object that is open.
void write_cost_basis(const CostBasis& basis, JsonWriter& out);

}  // namespace canzona

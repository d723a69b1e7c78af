// Names and limits that the writer and the reader of plan.json share.
#pragma once

#include <cstdint>
#include <string_view>

#include "canzona/base/enum_names.h"
#include "canzona/plan/plan.h"

namespace canzona {

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

}  // namespace canzona

// Names and limits that the writer and the reader of plan.json share.
#pragma once

#include <cstdint>
#include <string_view>

#include "canzona/base/enum_names.h"
#include "canzona/plan/plan.h"

namespace canzona {

inline constexpr const char* kPlanFormat = "canzona.plan";
inline constexpr int64_t kPlanVersion = 1;

inline constexpr EnumNames<Traffic, 4> kTrafficNames{
    {{Traffic::kReduceScatter, "reduce_scatter"},
     {Traffic::kPadded, "padded"},
     {Traffic::kBroadcast, "broadcast"},
     {Traffic::kAllReduce, "all_reduce"}}};

inline std::string_view traffic_name(Traffic traffic) {
  return name_of(kTrafficNames, traffic);
}

}  // namespace canzona

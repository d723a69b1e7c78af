// Names and limits that the writer and the reader of plan.json share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "canzona/plan/plan.h"

namespace canzona {

inline constexpr const char* kPlanFormat = "canzona.plan";
inline constexpr int64_t kPlanVersion = 1;

inline constexpr std::array<std::pair<Traffic, const char*>, 4> kTrafficNames{
    {{Traffic::kReduceScatter, "reduce_scatter"},
     {Traffic::kPadded, "padded"},
     {Traffic::kBroadcast, "broadcast"},
     {Traffic::kAllReduce, "all_reduce"}}};

inline std::string_view traffic_name(Traffic traffic) {
  for (const auto& [value, name] : kTrafficNames) {
    if (value == traffic) return name;
  }
  return "?";
}

}  // namespace canzona

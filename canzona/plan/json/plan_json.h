// plan.json: the same plan gives the same bytes everywhere. Schema:
// docs/plan.md.
//
//   std::string text = plan_to_json(plan);
//   ReadPlan read = plan_from_json(text, "plan.json");   // UsageError
//   if (!read.digest_matches) …   // a value was changed
//   std::vector<std::string> violations = validate(read.plan);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "canzona/base/json_reader.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"

namespace canzona {

// Names and limits that the writer and the reader of plan.json share.
inline constexpr const char* kPlanFormat = "canzona.plan";
// Version 3 has the sections "request", "storage" and "decisions". Versions 1
// and 2, whose members were all in the root, are still read.
inline constexpr int64_t kPlanVersion = 3;
// The values of "maker" in the section "storage": who cut the tensors.
inline constexpr const char* kMadeByPlanner = "planner";
inline constexpr const char* kMadeByCaller = "caller";

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

// A plan that was read. If the digest in the file does not match the contents,
// `digest_matches` is false.
template <class P>
struct PlanOfFile {
  P plan;
  bool digest_matches = true;
};
using ReadPlan = PlanOfFile<Plan>;

// Reads what plan_to_json wrote. Throws UsageError if the text is not a plan.
ReadPlan plan_from_json(std::string_view text, const std::string& where);

// These fields are the same in plans of our own layouts and of given storage.

// Begins a plan; its sections follow.
JsonWriter begin_plan(const std::string& digest);
// Writes an entry of "groups": a rule with all its options.
void write_group(const std::string& rule, const RuleOptions& options,
                 JsonWriter& out);

// The costs of matrices depend on their shape and, where the tensors of a plan
// are updated in groups, on the group.
using CostsByShape = std::map<std::pair<int32_t, MatrixShape>, MatrixCost>;
// Writes the member "cost".
void write_costs(const CostBasis& basis, const CostsByShape& costs,
                 bool has_groups, JsonWriter& out);
// Writes one owner as a number and several, or none, as a list.
void write_owners(std::span<const int32_t> ranks, JsonWriter& out);
// Writes members of "predicted".
void write_loads(const LoadSummary& summary,
                 const std::optional<Ticks>& team_bound, JsonWriter& out);
// Writes links as the next value.
void write_links(const Links& links, JsonWriter& out);

}  // namespace canzona

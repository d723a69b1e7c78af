// plan.json: the same plan gives the same bytes everywhere. Schema:
// docs/plan.md.
#pragma once

#include <string>
#include <string_view>

#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"

namespace canzona {

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

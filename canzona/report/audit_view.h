// The audit says what will happen to every tensor, before anything does: its
// rule, what it is split into, where it is kept, who computes it, what it holds
// and costs. An optimizer that was configured and never ran would show here.
//
//   std::string text = audit_text(plan, ink);
//   write_audit(json.member("audit"), plan);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"

namespace canzona {

// A matrix, or a tensor that is updated element by element.
struct AuditRow {
  std::string name;
  std::string rule;
  std::string split;            // "q", "q.3", "whole", "elements"
  int32_t home = kEveryHome;    // of its buffer; kEveryHome: all of them
  std::vector<int32_t> owners;  // ranks of the world; none: all that keep it
  std::optional<TeamStory> team = {};  // that shares it
  std::string team_reason = {};        // why, or why not; empty: teams are off
  int64_t bytes = 0;                   // of its parameters, whole
  double seconds = 0;  // predicted, mean over a period; 0: not counted
};

// In the model's order.
std::vector<AuditRow> audit(const Plan& plan);

std::string audit_text(const Plan& plan, const Ink& ink);
// An array of objects.
void write_audit(JsonWriter& out, const Plan& plan);

}  // namespace canzona

// One plan on the terminal and as JSON.
#pragma once

#include <string>

#include "canzona/base/json_writer.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"

namespace canzona {

// Shows what was planned, how well it is balanced and what it costs; `canzona
// plan` prints plan_text().
std::string plan_text(const ReportPlan& shown, const Ink& ink);

// Each section with its title.
std::string request_text(const ReportPlan& shown, const Ink& ink);
std::string plan_routing_text(const Plan& plan, const Ink& ink);
std::string balance_text(const ReportPlan& shown, const Ink& ink);
std::string loads_text(const ReportPlan& shown, const Ink& ink);
std::string memory_text(const ReportPlan& shown, const Ink& ink);
std::string wire_text(const ReportPlan& shown, const Ink& ink);
std::string times_text(const ReportPlan& shown, const Ink& ink);
std::string phases_text(const Plan& plan, const Ink& ink);

// Returns "muon", or "muon: precision=bf16": options that differ from the
// defaults.
std::string rule_text(const Plan& plan);
// "nominal rate, 400 TFLOP/s, no cost table" or "cost table of H200".
std::string cost_source_text(const CostBasis& basis);
// "nominal links: …" or "links: …".
std::string links_text(const PlanOptions& options);

// Returns everything that `canzona plan` prints and its page draws as one JSON
// object. (plan.json, the decisions alone, comes from
// canzona/plan/json/plan_json.h.)
std::string plan_view_json(const ReportPlan& shown);
// Writes the same object as a value; `complete` adds the figures of every rank
// and the planning time, which a page leaves out.
void write_plan_view(JsonWriter& out, const ReportPlan& shown, bool complete);

// Returns the page that draws it (page.h).
std::string plan_html(const ReportPlan& shown);

}  // namespace canzona

// One plan.
#pragma once

#include <string>

#include "canzona/report/document.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {

// Shows what was planned, how well it is balanced and what it costs, with
// everything that the page draws. `complete` adds the figures of every rank and
// the planning time, which a page leaves out. The plan must outlive the
// document. (plan.json, the decisions alone, comes from
// canzona/plan/json/plan_json.h.)
Document plan_view(const ReportPlan& shown, bool complete = true);

// Some of its sections.
Document balance_view(const ReportPlan& shown);
Document memory_view(const ReportPlan& shown);
Document times_view(const ReportPlan& shown);
Document phases_view(const Plan& plan);

// Returns "muon", or "muon: precision=bf16": options that differ from the
// defaults.
std::string rule_text(const Plan& plan);
// "nominal rate, 400 TFLOP/s, no cost table" or "cost table of H200".
std::string cost_source_text(const CostBasis& basis);
// "nominal links: …" or "links: …".
std::string links_text(const PlanOptions& options);

// Returns the page that draws it (page.h).
std::string plan_html(const ReportPlan& shown);

}  // namespace canzona::report

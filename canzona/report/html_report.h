// A plan, or several strategies side by side, as one HTML file.
//
//   write_file("report.html", html_report({shown}));            // one plan
//   write_file("compare.html", html_report({asc, megatron, ours}));
//
// The file opens from disk and asks the network for nothing. Names that came
// from files are escaped. The same plans give the same bytes: no date, no
// measured time of this machine. Pure; may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "canzona/report/report_plan.h"

namespace canzona {

// With several plans (of one model, mesh and rule) the report sets `before`,
// the plan of strategy start_offset or else the first, against `after`, the
// plan of strategy balanced or else the last. UsageError without a plan.
std::string html_report(const std::vector<ReportPlan>& plans);

}  // namespace canzona

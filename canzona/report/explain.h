// Why this owner, what moves: one matrix, one rank or one bucket of a plan.
//
//   std::cout << explain_matrix(shown, find_by_name(plan, name), ink);
//   std::cout << explain_rank_json(shown, 139);
//
// Text and JSON say the same; JSON leaves nothing out. Numbers were checked by
// the caller (places.h). Of a plan in parts buckets are counted over all of
// them (in_parts.h), matrices and ranks are those of the whole.
#pragma once

#include <string>

#include "canzona/report/places.h"
#include "canzona/report/report_plan.h"
#include "canzona/report/terminal_style.h"

namespace canzona {

std::string explain_matrices(const ReportPlan& shown, const Found& found,
                             const Ink& ink);
std::string explain_rank(const ReportPlan& shown, int32_t rank, const Ink& ink);
std::string explain_bucket(const Plan& plan, int32_t bucket, const Ink& ink);

std::string explain_matrices_json(const ReportPlan& shown, const Found& found);
std::string explain_rank_json(const ReportPlan& shown, int32_t rank);
std::string explain_bucket_json(const Plan& plan, int32_t bucket);

}  // namespace canzona

// What the sections of the HTML report look at, and the figures they share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/report/report_plan.h"

namespace canzona {

// Plans to show. With one plan `before` and `after` are the same.
struct PageView {
  const std::vector<ReportPlan>& plans;
  size_t before = 0;
  size_t after = 0;

  explicit PageView(const std::vector<ReportPlan>& shown);
  bool several() const { return plans.size() > 1; }
  bool two() const { return before != after; }
  const ReportPlan& old_plan() const { return plans[before]; }
  const ReportPlan& plan() const { return plans[after]; }
  // Of the two plans to set against each other, or of the only one.
  std::vector<const ReportPlan*> pair() const;
};

// Load of every rank over a period, as a multiple of `unit` ticks.
std::vector<double> rank_loads(const ReportPlan& shown, double unit);

// Mean load of a rank over a period, in ticks; 0 without matrices.
double mean_load(const ReportPlan& shown);

// "rank 11 (home 1, t 3)"; the stage too where there are several.
std::string rank_title(const Mesh& mesh, int32_t rank);

// Home of a tensor among all homes of its stage; kEveryHome if it has none.
int32_t home_of(const PlanPart& plan, int32_t tensor);
int32_t stage_of_bucket(const PlanPart& plan, const Bucket& bucket);

// Cost of a matrix in an ordinary step, with its share of the refreshes.
double mean_cost(const SettledRequest& plan, size_t matrix);

// Ticks as predicted time: "1.21 ms".
std::string ticks_text(const SettledRequest& plan, double ticks);

// "nominal rate, no cost table" or "measured on <device>".
std::string rate_text(const SettledRequest& plan);

int64_t parameter_bytes(const SettledRequest& plan);

}  // namespace canzona

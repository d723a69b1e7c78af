#include "canzona/report/html_view.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"

namespace canzona {
namespace {

size_t plan_of_strategy(const std::vector<ReportPlan>& plans,
                        std::string_view strategy, size_t otherwise) {
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].plan.options.strategy == strategy) return i;
  }
  return otherwise;
}

}  // namespace

PageView::PageView(const std::vector<ReportPlan>& shown) : plans(shown) {
  if (shown.empty()) throw UsageError("html report: there is no plan to show");
  before = plan_of_strategy(shown, "start_offset", 0);
  after = plan_of_strategy(shown, "balanced", shown.size() - 1);
}

std::vector<const ReportPlan*> PageView::pair() const {
  if (two()) return {&old_plan(), &plan()};
  return {&plan()};
}

std::vector<double> rank_loads(const ReportPlan& shown, double unit) {
  std::vector<double> loads = period_loads(shown.plan, shown.ranks);
  for (double& load : loads) load = unit > 0 ? load / unit : 0;
  return loads;
}

double mean_load(const ReportPlan& shown) { return shown.plan.summary.mean; }

std::string rank_title(const Mesh& mesh, int32_t rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  std::string text = cat("rank ", rank, " (");
  if (mesh.pp > 1) text += cat("stage ", at.stage, ", ");
  return text + cat("home ", at.home, ", t ", at.t, ")");
}

int32_t home_of(const PlanPart& plan, int32_t tensor) {
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  if (home == kEveryHome) return kEveryHome;
  return plan.stage_home(plan.buffer_of(tensor), home);
}

int32_t stage_of_bucket(const PlanPart& plan, const Bucket& bucket) {
  return plan.buffers[static_cast<size_t>(bucket.buffer)].stage;
}

double mean_cost(const SettledRequest& plan, size_t matrix) {
  return period_load(plan, plan.costs[matrix]) / plan.period;
}

std::string ticks_text(const SettledRequest& plan, double ticks) {
  if (!(plan.cost_basis.seconds_per_tick > 0)) {
    return human_count(ticks) + " ticks";
  }
  return human_seconds(ticks * plan.cost_basis.seconds_per_tick);
}

std::string rate_text(const SettledRequest& plan) {
  if (is_nominal(plan.cost_basis)) return "nominal rate, no cost table";
  return "measured on " + plan.cost_basis.source;
}

int64_t parameter_bytes(const SettledRequest& plan) {
  return plan.options.parameters == ParameterDtype::kFp32 ? kBytesPerFp32
                                                          : kBytesPerBf16;
}

}  // namespace canzona

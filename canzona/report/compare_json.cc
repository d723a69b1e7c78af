#include "canzona/report/compare_view.h"
#include "canzona/report/in_parts.h"
#include "canzona/report/json_parts.h"

namespace canzona {
namespace {

void write_strategy(JsonWriter& out, const ComparedStrategy& strategy) {
  out.begin_object().field("name", strategy.name);
  if (!strategy.shown) {
    out.field("error", strategy.error).end_object();
    return;
  }
  const ReportPlan& shown = *strategy.shown;
  const PlanSummary& summary = shown.plan.summary;
  out.field("num_buckets", num_buckets(shown.plan));
  write_balance_members(out, shown.balance);
  out.field("bytes_per_rank_max", summary.bytes_per_rank_max.value());
  out.field("memory_per_rank_max", summary.memory_per_rank_max.value());
  out.field("memory_per_rank_mean", summary.memory_per_rank_mean);
  if (shown.terms) write_counted_memory(out.member("counted_memory"), shown);
  out.field("predicted_step_seconds", summary.step_seconds_mean);
  out.field("plan_seconds", shown.plan_seconds);
  out.field("digest", shown.plan.digest).end_object();
}

// `balanced` joins a small tail bucket to its neighbour; the number that
// describes the input is the one of the other strategies.
const ReportPlan& typical(const Comparison& comparison) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name != "balanced") return *strategy.shown;
  return *comparison.first();
}

}  // namespace

std::string compare_json(const Comparison& comparison) {
  JsonWriter out(2);
  out.begin_object().field("model", comparison.model).member("mesh");
  write_mesh(out, comparison.mesh);
  out.field("world", comparison.mesh.world());
  if (comparison.first() != nullptr) {
    const Plan& plan = typical(comparison).plan;
    out.field("num_matrices", plan.matrices.size());
    out.field("num_buckets", num_buckets(plan));
    out.field("rule", plan.rule).field("fused", plan.model.fused);
    out.field("cost_source", plan.cost_basis.source);
    out.field("nominal_links", plan.options.links.nominal);
  }
  out.member("strategies").begin_array();
  for (const ComparedStrategy& strategy : comparison.strategies)
    write_strategy(out, strategy);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona

#include "canzona/report/plan_json_view.h"

#include "canzona/report/in_parts.h"
#include "canzona/report/json_parts.h"
#include "canzona/report/numbers.h"
#include "canzona/report/routing_view.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

void write_model(JsonWriter& out, const Model& model) {
  double elements = 0;
  for (const Tensor& tensor : model.tensors)
    elements += static_cast<double>(tensor.elements());
  out.field("model", model.name).field("fused", model.fused);
  out.field("num_tensors", model.tensors.size());
  out.field("elements", elements);
}

void write_rule(JsonWriter& out, const Plan& plan) {
  out.member("rule").begin_object().field("name", plan.rule);
  out.member("options").begin_object();
  for (const auto& [name, value] : plan.rule_options) out.field(name, value);
  out.end_object();
  out.field("period", plan.period).field("phases", plan.phases).end_object();
}

void write_options(JsonWriter& out, const PlanOptions& options) {
  out.member("options").begin_object();
  out.field("micro_groups", options.micro_groups);
  out.field("split", to_string(options.splits));
  out.field("bucket_elements", options.bucket_elements);
  if (options.alpha) out.field("alpha", *options.alpha);
  if (options.weight) out.field("weight", to_string(*options.weight));
  out.field("capacity_bytes", options.capacity_bytes);
  out.field("memory_cap_bytes", options.memory_cap_bytes);
  out.field("ranks_per_node", options.ranks_per_node);
  out.field("parameters", to_string(options.parameters)).end_object();
}

void write_basis(JsonWriter& out, const Plan& plan) {
  out.member("cost").begin_object();
  out.field("source", plan.cost_basis.source);
  out.field("nominal", is_nominal(plan.cost_basis));
  out.field("seconds_per_tick", plan.cost_basis.seconds_per_tick);
  if (plan.cost_basis.element_wise_bytes_per_second > 0)
    out.field("element_wise_bytes_per_second",
              plan.cost_basis.element_wise_bytes_per_second);
  out.end_object();
  const Links& links = plan.options.links;
  out.member("links").begin_object().field("nominal", links.nominal);
  out.field("intra_bytes_per_second", links.intra_bytes_per_second);
  out.field("inter_bytes_per_second", links.inter_bytes_per_second);
  out.field("latency_seconds", links.latency_seconds).end_object();
}

void write_summary(JsonWriter& out, const Plan& plan) {
  const PlanSummary& s = plan.summary;
  out.field("makespan", s.makespan.value()).field("bound", s.bound.value());
  out.field("mean", s.mean);
  out.field("bytes_per_rank_max", s.bytes_per_rank_max.value());
  out.field("memory_per_rank_max", s.memory_per_rank_max.value());
  out.field("memory_per_rank_mean", s.memory_per_rank_mean);
  out.member("predicted").begin_object();
  out.field("step_seconds_mean", s.step_seconds_mean);
  out.field("step_seconds_worst", s.step_seconds_worst).end_object();
}

void write_phases(JsonWriter& out, const Plan& plan) {
  if (plan.period <= 1) return;
  out.member("phase_outlook").begin_array();
  for (const PhaseOutlook& outlook : phase_outlook(plan)) {
    out.begin_object().field("phases", outlook.phases);
    out.field("mean_step", outlook.mean_step);
    out.field("worst_step", outlook.worst_step);
    out.field("predicted_mean_seconds", outlook.mean_seconds);
    out.field("predicted_worst_seconds", outlook.worst_seconds).end_object();
  }
  out.end_array();
}

void write_ranks(JsonWriter& out, const ReportPlan& shown) {
  out.member("ranks").begin_array();
  for (const RankCost& rank : shown.ranks) {
    out.begin_object().field("num_matrices", rank.num_matrices);
    out.field("elements", rank.elements);
    out.field("load", period_load(shown.plan, rank));
    out.field("predicted_transform_seconds", rank.transform_seconds_mean);
    out.field("predicted_element_wise_seconds", rank.element_wise_seconds);
    out.field("predicted_step_seconds", rank.step_seconds);
    out.member("memory");
    write_memory(out, rank.memory);
    out.member("bytes");
    write_wire(out, rank);
    out.end_object();
  }
  out.end_array();
}

}  // namespace

std::string plan_view_json(const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  JsonWriter out(2);
  out.begin_object();
  write_model(out, plan.model);
  out.member("mesh");
  write_mesh(out, plan.mesh);
  out.field("world", plan.mesh.world());
  write_rule(out, plan);
  out.field("strategy", plan.options.strategy);
  write_options(out, plan.options);
  write_basis(out, plan);
  out.field("num_matrices", plan.matrices.size());
  out.field("num_buckets", num_buckets(plan));
  out.field("digest", plan.digest);
  out.member("routing");
  write_routing(out, group_tensors(plan.model, plan.matrices), plan.rule);
  write_balance_members(out, shown.balance);
  write_summary(out, plan);
  if (shown.terms) write_counted_memory(out.member("counted_memory"), shown);
  write_zero(out, shown);
  write_phases(out, plan);
  write_ranks(out, shown);
  if (shown.plan_seconds > 0) out.field("plan_seconds", shown.plan_seconds);
  out.end_object();
  return out.take() + "\n";
}

}  // namespace canzona

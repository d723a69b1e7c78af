// The answer of `canzona bench step` as JSON.
#include "canzona/base/json_writer.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/bench/step_report.h"
#include "canzona/report/models_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

void write_step_link(JsonWriter& out, const StepReport& report) {
  const StepBench& bench = report.bench;
  if (!bench.link) {
    out.null();
    return;
  }
  begin_link(out, *bench.link);
  out.field("copy_bytes_per_second", bench.copy_bytes_per_second);
  out.field("too_fast", is_too_fast(bench.link, bench.copy_bytes_per_second));
  out.member("comm_ratio");
  report.comm_ratio > 0 ? out.value(report.comm_ratio) : out.null();
  out.end_object();
}

void write_if(JsonWriter& out, bool is_known, const char* name, double value) {
  out.member(name);
  is_known ? out.value(value) : out.null();
}

void write_step_times(JsonWriter& out, const StepBench& bench,
                      const PlanBench& s) {
  const StepTrial& t = s.trial;
  out.field("step_seconds", t.step.median);
  out.field("step_seconds_mean", t.step.mean);
  out.field("step_seconds_worst", t.step.worst);
  out.field("step_compute_seconds", t.step_compute_seconds);
  out.field("host_seconds", t.host_seconds);
  out.field("step_and_gather_seconds", t.step_and_gather.median);
  write_if(out, t.knows_busy, "step_hidden_fraction",
           t.step_links.hidden_fraction());
  write_if(out, t.knows_exposed, "step_covered_fraction",
           t.step_links.covered_fraction());
  out.field("step_waited_seconds", t.step_links.waited);
  write_if(out, t.knows_busy, "step_busy_seconds", t.step_links.busy);
  write_if(out, t.knows_exposed, "step_exposed_seconds", t.step_links.exposed);
  out.field("predicted_step_seconds", s.predicted_mean());
  out.field("predicted_step_seconds_worst", s.predicted_worst());
  if (s.serial_step.mean > 0)
    out.field("serial_step_seconds", s.serial_step.mean);
  if (bench.one_rank_step.mean > 0) {
    out.field("scaling_efficiency", bench.scaling(s));
    out.field("scaling_efficiency_of_machine",
              bench.scaling(s) / bench.products.efficiency());
  }
  write_if(out, s.speedup_over_replicated > 0, "speedup_over_replicated",
           s.speedup_over_replicated);
}

void write_iteration_times(JsonWriter& out, const PlanBench& s) {
  const StepTrial& t = s.trial;
  const double seconds = t.iteration.median;
  const bool is_run = seconds > 0;
  const bool knows_busy = is_run && t.knows_busy;
  const bool knows_exposed = is_run && t.knows_exposed;
  write_if(out, is_run, "iteration_seconds", seconds);
  write_if(out, is_run, "iteration_seconds_mean", t.iteration.mean);
  write_if(out, is_run, "iteration_seconds_worst", t.iteration.worst);
  write_if(out, is_run, "iteration_seconds_spread", t.iteration.spread);
  write_if(out, is_run, "predicted_iteration_seconds",
           s.predicted_iteration_seconds);
  write_if(out, knows_busy, "hidden_fraction", t.links.hidden_fraction());
  write_if(out, is_run, "predicted_hidden_fraction",
           s.predicted_hidden_fraction);
  write_if(out, knows_exposed, "covered_fraction", t.links.covered_fraction());
  write_if(out, is_run, "compute_seconds", t.compute_seconds);
  write_if(out, is_run, "waited_seconds", t.links.waited);
  write_if(out, knows_busy, "links_busy_seconds", t.links.busy);
  write_if(out, knows_exposed, "links_exposed_seconds", t.links.exposed);
  out.field("link_seconds", s.link_seconds);
  out.field("edge_seconds", s.edge_seconds);
}

void write_ranks(JsonWriter& out, const PlanBench& s) {
  std::vector<double> predicted;
  for (const RankCost& rank : s.predicted)
    predicted.push_back(rank.step_seconds_mean);
  out.member("rank_step_seconds").values(s.trial.rank_seconds);
  out.member("rank_predicted_seconds").values(predicted);
  out.member("rank_bytes_sent").values(s.trial.bytes_sent);
  out.member("rank_slow_bytes_sent").values(s.trial.slow_bytes_sent);
  out.member("rank_memory_bytes").values(s.trial.memory_bytes);
}

void write_memory(JsonWriter& out, const PlanBench& s) {
  const Runtime::PoolUse& pools = s.trial.pools;
  out.field("memory_bytes_max", s.trial.memory_bytes_max);
  out.field("memory_predicted_max", s.memory_predicted_max);
  out.member("pool_high_water").begin_object();
  out.field("bytes", pools.bytes).field("gather_slots", pools.gather_slots);
  out.field("scatter_slots", pools.scatter_slots).end_object();
}

void write_plan(JsonWriter& out, const StepReport& report, const PlanBench& s) {
  out.begin_object().field("name", s.choice.strategy);
  write_sizes(out.member("zero"),
              with_states(s.choice.sizes, report.mesh.homes()));
  out.field("overlap", to_string(s.choice.overlap));
  if (!s.error.empty()) {
    out.field("error", s.error).end_object();
    return;
  }
  out.field("digest", s.trial.digest);
  out.field("state_digest", s.trial.state_digest);
  out.field("digest_seconds", s.trial.digest_seconds);
  write_step_times(out, report.bench, s);
  write_iteration_times(out, s);
  out.field("bytes_sent_max", s.trial.bytes_sent_max);
  out.field("bytes_predicted_max", s.bytes_predicted.most_sent());
  out.field("slow_bytes_sent_max", s.trial.slow_bytes_sent_max);
  out.field("slow_bytes_predicted_max", s.bytes_predicted.most_slow());
  out.field("collectives", to_string(s.plan->options.zero.reach));
  write_teams_by_size(out.member("teams"), *s.plan);
  write_memory(out, s);
  write_ranks(out, s);
  out.field("plan_digest", s.plan->digest);
  if (report.audited) write_audit(out.member("audit"), *s.plan);
  out.end_object();
}

// Takes the period from any plan that was made: all have the same.
void write_period(JsonWriter& out, const StepBench& bench) {
  for (const PlanBench& s : bench.plans) {
    if (!s.plan) continue;
    out.field("period", s.plan->period).field("phases", s.plan->phases);
    out.field("covers_period", s.trial.step.covers_period);
    out.field("cost", bench.speed ? "this machine" : s.plan->cost_basis.source);
    if (!bench.speed) return;
    out.field("flops_per_second", bench.speed->flops_per_second);
    out.field("copy_bytes_per_second", bench.speed->copy_bytes_per_second);
    return;
  }
}

}  // namespace

std::string step_json(const StepReport& report) {
  const StepBench& bench = report.bench;
  JsonWriter out(2);
  out.begin_object().field("model", report.model).member("mesh");
  write_mesh(out, report.mesh);
  out.field("world", report.mesh.world()).field("rule", report.rule);
  write_precision(out, report.precision);
  out.field("transport", report.transport);
  out.field("gradients", to_string(report.trial.gradients));
  out.field("steps", report.trial.steps);
  out.field("warmup", report.trial.warmup);
  out.field("iterations", report.trial.iterations);
  out.field("micro_batches", report.trial.micro_batches);
  write_period(out, bench);
  out.member("beginning").begin_array();
  for (const Phase& phase : bench.beginning)
    out.begin_object()
        .field("phase", phase.name)
        .field("seconds", phase.seconds)
        .end_object();
  out.end_array();
  out.field("compute_seconds", bench.compute_seconds);
  out.member("product_tokens");
  report.trial.product_tokens > 0 ? out.value(report.trial.product_tokens)
                                  : out.null();
  out.field("measured_first", bench.measured_first);
  if (bench.one_rank_step.mean > 0) {
    out.field("one_rank_step_seconds", bench.one_rank_step.mean);
    out.field("machine_efficiency", bench.products.efficiency());
    if (bench.products_bf16)
      out.field("machine_efficiency_bf16", bench.products_bf16->efficiency());
  }
  write_step_link(out.member("link"), report);
  if (!report.library_memory.empty())
    write_library_memory(out, report.library_memory,
                         report.largest_library_bytes);
  out.field("digests_agree", report.disagreement().empty());
  out.member("warnings").values(warnings_of(report));
  out.member("strategies").begin_array();
  for (const PlanBench& s : bench.plans) write_plan(out, report, s);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona

// The answer of `canzona bench step` as JSON.
#include "canzona/base/json_writer.h"
#include "canzona/report/audit_view.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/bench/step_report.h"
#include "canzona/report/json_parts.h"

namespace canzona {
namespace {

void write_step_link(JsonWriter& out, const StepBench& bench) {
  if (!bench.link) {
    out.null();
    return;
  }
  begin_link(out, *bench.link);
  out.field("copy_bytes_per_second", bench.copy_bytes_per_second);
  out.field("too_fast", is_too_fast(bench.link, bench.copy_bytes_per_second))
      .end_object();
}

void write_step_times(JsonWriter& out, const StepBench& bench,
                      const StrategyBench& s) {
  const StepTrial& t = s.trial;
  out.field("step_seconds", t.step.median);
  out.field("step_seconds_mean", t.step.mean);
  out.field("step_seconds_worst", t.step.worst);
  out.field("step_compute_seconds", t.step_compute_seconds);
  out.field("step_and_gather_seconds", t.step_and_gather.median);
  out.member("iteration_seconds");
  t.iteration_seconds > 0 ? out.value(t.iteration_seconds) : out.null();
  out.field("hidden_fraction", t.hidden_fraction);
  out.field("step_hidden_fraction", t.step_hidden_fraction);
  out.field("waited_seconds", t.waited_seconds);
  out.field("links_busy_seconds", t.links_busy_seconds);
  out.field("predicted_step_seconds", s.predicted_mean());
  out.field("predicted_step_seconds_worst", s.predicted_worst());
  if (s.serial_step.mean > 0)
    out.field("serial_step_seconds", s.serial_step.mean);
  if (bench.one_rank_step.mean > 0) {
    out.field("scaling_efficiency", bench.scaling(s));
    out.field("scaling_efficiency_of_machine",
              bench.scaling(s) / bench.products.efficiency());
  }
  out.member("speedup_over_replicated");
  s.speedup_over_replicated > 0 ? out.value(s.speedup_over_replicated)
                                : out.null();
}

void write_ranks(JsonWriter& out, const StrategyBench& s) {
  std::vector<double> predicted;
  for (const RankCost& rank : s.predicted)
    predicted.push_back(rank.step_seconds_mean);
  out.member("rank_step_seconds").values(s.trial.rank_seconds);
  out.member("rank_predicted_seconds").values(predicted);
  out.member("rank_bytes_sent").values(s.trial.bytes_sent);
  out.member("rank_memory_bytes").values(s.trial.memory_bytes);
}

void write_strategy(JsonWriter& out, const StepBench& bench,
                    const StrategyBench& s, bool audited) {
  out.begin_object().field("name", s.name);
  if (!s.error.empty()) {
    out.field("error", s.error).end_object();
    return;
  }
  out.field("digest", s.trial.digest);
  out.field("state_digest", s.trial.state_digest);
  write_step_times(out, bench, s);
  out.field("bytes_sent_max", s.trial.bytes_sent_max);
  out.field("bytes_predicted_max", s.bytes_predicted_max);
  out.field("memory_bytes_max", s.trial.memory_bytes_max);
  out.field("memory_predicted_max", s.memory_predicted_max);
  write_ranks(out, s);
  out.field("plan_digest", s.plan->digest);
  if (audited) write_audit(out.member("audit"), *s.plan);
  out.end_object();
}

// Of a plan that was made; the same for all strategies.
void write_period(JsonWriter& out, const StepBench& bench) {
  for (const StrategyBench& s : bench.strategies) {
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
  write_period(out, bench);
  out.field("compute_seconds", bench.compute_seconds);
  out.field("measured_first", bench.measured_first);
  if (bench.one_rank_step.mean > 0) {
    out.field("one_rank_step_seconds", bench.one_rank_step.mean);
    out.field("machine_efficiency", bench.products.efficiency());
    if (bench.products_bf16)
      out.field("machine_efficiency_bf16", bench.products_bf16->efficiency());
  }
  write_step_link(out.member("link"), bench);
  out.field("digests_agree", digests_agree(report));
  out.member("warnings").values(warnings_of(report));
  out.member("strategies").begin_array();
  for (const StrategyBench& s : bench.strategies)
    write_strategy(out, bench, s, report.audited);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona

// `canzona bench zero`: iterations of training with every size of ZeRO, timed.
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/report/bench/zero_report.h"
#include "cli/bench.h"
#include "cli/bench_zero_arguments.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/train_job.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchZeroExamples =
    R"(Examples:
  canzona bench zero --mesh dp=8 --zero all --overlap background --json
  canzona bench zero --mesh dp=2 --zero zero3 --overlap all --comm-ratio 0.5
  canzona bench zero --mesh dp=8 --zero 'zero3;hier:4;z1=8,z2=2,z3=4' --micro-batches 4 \
    --ranks-per-node 4 --link intra=10GB/s,inter=1GB/s --comm-ratio 2
  canzona bench zero --mesh dp=4 --zero zero3 --overlap background --trace zero.json

Every cell (sizes, overlap) trains the decoder on thread ranks: --repeat rounds of one
iteration that is not timed and --steps that are, cells in turn. `iteration` is the
slowest rank's, the median of all timed ones; `hidden` is 1 - time compute waited / time
links were busy, `covered` the share of that time in which compute went on, `in step` what
is hidden of the gathers and scatters of matrices. `slow bytes` leave the node of
--ranks-per-node ranks.

With --link or --comm-ratio times are those of a modelled link: data is copied and added
at once, only its arrival is postponed. --comm-ratio X: links are so fast that the busiest
port of zero3 (or of the first sizes asked for) is busy X times as long as a rank
computes, which is measured first, without links.

Exit status: 0 done, 1 cells that must lead to the same digests do not, 2 a mistake in the
request, 4 a rank was lost or late.
)";

// The plan of a training run, with other sizes and links.
Plan plan_with(const Plan& plan, const ZeroOptions& zero, const Link& link,
               int ranks_per_node) {
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  PlanOptions options = plan.options;
  options.zero = zero;
  options.ranks_per_node = ranks_per_node;
  put_link(link, options);
  return make_plan({plan.model, plan.mesh, *rule, options});
}

ZeroBenchRequest request_of(const ZeroArguments& a, const TrainJob& job,
                            const Output& out) {
  const Mesh& mesh = job.plan.mesh;
  const int ranks_per_node =
      a.ranks_per_node > 0 ? a.ranks_per_node : mesh.world();
  ZeroBenchRequest request;
  request.settings = job.settings;
  request.mesh = mesh;
  request.sizes = zero_sizes(a, mesh.homes());
  request.overlaps = zero_overlaps(a);
  if (!a.link.empty()) request.link = parse_link_model(a.link, ranks_per_node);
  request.communicator.ranks_per_node =
      request.link ? request.link->ranks_per_node : ranks_per_node;
  if (!a.deadline.empty())
    request.communicator.deadline = parse_deadline(a.deadline);
  if (!a.comm_ratio.empty())
    request.comm_ratio = parse_number(a.comm_ratio, 1e-6, 1e6, "--comm-ratio");
  ZeroOptions zero;
  zero.message = parse_message_unit(a.message);
  zero.prefetch = parse_prefetch(a.prefetch);
  zero.replica_sum = parse_replica_sum(a.replica_sum);
  if (!a.zero_experts.empty())
    zero.experts =
        parse_zero(a.zero_experts, mesh.expert_homes(), "--zero-experts");
  zero.reach = parse_reach(a.collectives);
  request.plan = [&job, zero, ranks_per_node](const ZeroSizes& sizes,
                                              const Link& link) mutable {
    zero.sizes = sizes;
    return plan_with(job.plan, zero, link, ranks_per_node);
  };
  request.trial = {.warmup = a.warmup, .steps = a.steps};
  request.repeats = a.repeats;
  if (!a.limit.empty())
    request.limit_seconds = parse_duration(a.limit, "--limit");
  request.progress = [&out](const std::string& what) { out.progress(what); };
  return request;
}

ZeroReport report_of(const ZeroArguments& a, const TrainConfig& config,
                     const TrainJob& job, const ZeroBenchRequest& request) {
  return {.model = model_name(config),
          .num_parameters = job.num_parameters(),
          .rule = config.rule.name,
          .precision = precision_of(config),
          .strategy = config.plan.strategy,
          .reach = parse_reach(a.collectives),
          .request = request,
          .bench = run_zero_bench(request)};
}

Outcome run(const ZeroArguments& a, const Output& out) {
  check_arguments(a);
  const TrainConfig config = zero_config(a);
  const TrainJob job = make_job(config, mesh_of(config));
  require_memory(job, job.plan.mesh.world());
  const auto seed = static_cast<uint64_t>(config.seed);
  const auto tokens = open_tokens(config.data.path,
                                  {.vocab = config.model.vocab, .seed = seed});
  const Batches batches(*tokens, {.length = config.model.length,
                                  .seed = seed,
                                  .held_out = config.data.held_out});
  ZeroBenchRequest request = request_of(a, job, out);
  request.batches = &batches;
  std::unique_ptr<Trace> trace;
  if (!a.trace.empty()) trace = std::make_unique<Trace>();
  request.trace = trace.get();

  const ZeroReport report = report_of(a, config, job, request);
  out.progress("");
  if (trace != nullptr) out.save_trace(a.trace, *trace);
  for (const std::string& warning : warnings_of(report))
    out.note("warning: " + warning);
  out.result(a.json ? zero_json(report) : zero_text(report, out.ink()));
  return report.disagreement().empty() ? Outcome::kDone : Outcome::kFailed;
}

}  // namespace

Verb add_bench_zero(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "zero", "train with every size of ZeRO: time, overlap, traffic, memory");
  auto a = std::make_shared<ZeroArguments>();
  add_zero_arguments(*app, *a);
  app->footer(kBenchZeroExamples);
  return {app, [a](const Output& out) { return run(*a, out); }};
}

}  // namespace canzona::cli

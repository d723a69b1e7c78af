// `canzona bench step`: plans executed by real ranks, and timed.
#include <fmt/format.h>

#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/bench/step_report.h"
#include "canzona/report/models_view.h"
#include "canzona/report/zero_view.h"
#include "cli/bench.h"
#include "cli/errors.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "cli/test_fault.h"
#include "cli/with_flags.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchStepExamples =
    R"(Examples:
  canzona bench step --model qwen3-1.7b --scale 1/8 --layers 4 --mesh dp=2,tp=2
  canzona bench step --model qwen3-0.6b --layers 2 --mesh dp=4 --rule soap --steps 21 --json
  canzona bench step --model qwen3-0.6b --scale 1/4 --mesh tp=4 --strategy balanced \
    --comm-ratio 0.5 --compute 0 --trace step.json
  mpirun -n 4 canzona bench step --model qwen3-0.6b --scale 1/8 --mesh dp=4
  mpirun -n 8 canzona bench step --model qwen3-1.7b --mesh dp=8 --device cuda
  canzona bench step --model qwen3-1.7b --layers 8 --mesh tp=4 --strategy balanced \
    --device cuda --compute products --tokens 4096 --comm-ratio 0.5

What is measured: `step` runs from the last gradient reduced to the last parameter
applied, `with gather` until all parameters are gathered with nothing to hide it, both on
the slowest rank. `iteration` has timed work in the place of forward and backward: ranks
sleep, as a host does while its accelerator computes, module by module, a third of the
time forward. On a GPU it is the GPU that stands still for --compute SECONDS, or, with
--compute products, multiplies every matrix of a module in bf16 with --tokens tokens, once
forward and twice backward; nobody waits between iterations. `hidden` is 1 - time compute
waited / time links were busy, in iterations, on a GPU by its own clock.
`mean` and `worst` are over a period of refreshes; give --steps enough to cover it.

Gradients are made from names and positions. `exact`: 28 slices of small integers x 2^-20
dealt over the data-parallel ranks; sums are exact, so that every mesh has one digest.
`random`: a number for each rank; one digest for each number of data-parallel ranks.

With --link or --comm-ratio times are those of a modelled link: data is copied and added
at once, only its arrival is postponed. --comm-ratio X: a rank sends for X times as long
as it computes in an iteration, step included, by the strategy that is measured first.

Exit status: 0 done, 1 strategies lead to different digests, 2 a mistake in the request,
4 a rank was lost or late.
)";

struct BenchStepFlags {
  PlanArguments plan;
  std::string transport;
  std::string device = "cpu";
  RankOptions meeting;  // how processes meet and share GPUs
  std::string gradients = "exact";
  std::string wire = "fp32";
  std::string deadline;
  std::string comm_ratio;
  std::string compute;
  std::string tokens;
  std::string clip;
  std::string trace;
  std::string flight_record;
  int steps = 5;
  int warmup = -1;      // 1, or 0 if there is only one step
  int iterations = -1;  // -1: as many as timed steps
  bool serial = false;
  bool with_serial = false;
  bool scaling = false;
  bool check_collectives = false;
  bool fast_reduce = false;
  bool audit = false;
};

GradientWire parse_wire(const std::string& text) {
  if (text == "fp32") return GradientWire::kFp32;
  if (text == "bf16") return GradientWire::kBf16;
  throw UsageError(cat("--wire ", quoted(text), ": expected fp32 or bf16",
                       did_you_mean(text, {"fp32", "bf16"})));
}

StepTrialRequest trial_of(const BenchStepFlags& a) {
  constexpr int kMostSteps = 1'000'000;
  check_range("--steps", a.steps, 1, kMostSteps);
  StepTrialRequest trial;
  trial.gradients = parse_gradient_kind(a.gradients);
  trial.steps = a.steps;
  trial.warmup = a.warmup >= 0 ? a.warmup : a.steps > 1 ? 1 : 0;
  check_range("--warmup", trial.warmup, 0, a.steps - 1);
  trial.iterations =
      a.iterations >= 0 ? a.iterations : trial.steps - trial.warmup;
  check_range("--iterations", trial.iterations, 0, kMostSteps);
  if (!a.clip.empty())
    trial.clip_norm = parse_number(a.clip, 0, 1e30, "--clip");
  trial.runtime.wire = parse_wire(a.wire);
  trial.runtime.pipelined = !a.serial;
  const bool multiplies = is_of_products(a.compute, a.device);
  if (!multiplies && !a.tokens.empty())
    throw UsageError("--tokens goes with --compute products");
  constexpr int64_t kUsualTokens = 4096;
  if (multiplies)
    trial.product_tokens =
        a.tokens.empty()
            ? kUsualTokens
            : parse_integer(a.tokens, 1, int64_t{1} << 30, "--tokens");
  return trial;
}

// The plan's links are the modelled ones; nothing is assumed.
Link modelled_link(const BenchStepFlags& a, const PlanOptions& options) {
  if (a.plan.link.empty()) return {};
  return parse_link_model(a.plan.link, options.ranks_per_node);
}

PlanInput copy_of(const PlanInput& input) {
  PlanInput own = {input.model,   input.mesh,       nullptr,
                   input.options, input.cost_table, input.note};
  own.rule = make_rule_facts(input.rule->name(), input.rule->options());
  return own;
}

Plan plan_on_link(const PlanInput& input, const std::string& strategy,
                  const Link& link) {
  PlanInput own = copy_of(input);
  put_link(link, own.options);
  return plan_once(own, strategy).plan;
}

// One rank has nobody to share matrices with, nor to exchange them with.
Plan plan_alone(const PlanInput& input) {
  PlanInput own = copy_of(input);
  own.mesh = Mesh{};
  own.options.teams = kTeamsOff;
  own.options.exchange = ExchangeBy::kRounds;
  return plan_once(own, "balanced").plan;
}

StepBenchRequest request_of(const BenchStepFlags& a, const PlanInput& input,
                            const Output& out) {
  StepBenchRequest request;
  request.strategies = known_strategies(a.plan.strategies, "--strategy");
  request.plan = [&input](const std::string& strategy, const Link& link) {
    return plan_on_link(input, strategy, link);
  };
  request.device = a.device;
  request.with_serial = a.with_serial;
  if (a.scaling) request.one_rank = [&input] { return plan_alone(input); };
  request.trial = trial_of(a);
  request.link = modelled_link(a, input.options);
  if (!a.comm_ratio.empty())
    request.comm_ratio = parse_number(a.comm_ratio, 1e-6, 1e6, "--comm-ratio");
  if (!a.compute.empty() && request.trial.product_tokens == 0)
    request.compute_seconds = parse_compute_seconds(a.compute);
  request.progress = [&out](const std::string& what) { out.progress(what); };
  if (!a.trace.empty() && request.strategies.size() > 1)
    throw UsageError(cat("--trace shows one strategy, not ",
                         request.strategies.size(),
                         "; choose one, such as --strategy balanced"));
  return request;
}

RankOptions rank_options(const BenchStepFlags& a, int num_ranks, bool links) {
  RankOptions options = a.meeting;
  options.transport = a.transport;
  options.device = a.device;
  options.num_ranks = num_ranks;
  options.links = links;
  options.flight_record = a.flight_record;
  options.communicator.check_collectives = a.check_collectives;
  options.communicator.fast_reduce = a.fast_reduce;
  if (!a.deadline.empty())
    options.communicator.deadline = parse_deadline(a.deadline);
  return options;
}

// Throws UsageError, with the first reason, if no strategy could be run.
void require_some(const StepBench& bench) {
  const bool any = std::ranges::any_of(
      bench.strategies, [](const StrategyBench& s) { return s.error.empty(); });
  if (any || bench.strategies.empty()) return;
  const StrategyBench& first = bench.strategies.front();
  throw UsageError(
      cat("no strategy could be run; ", first.name, ": ", first.error));
}

// Shows every tensor of every plan before anything runs. With --json this is
// part of the object at the end.
void show_audit(const StepBenchRequest& request, const Output& out) {
  for (const std::string& strategy : request.strategies) {
    try {
      out.result(audit_text(request.plan(strategy, request.link), out.ink()) +
                 "\n");
    } catch (const UsageError&) {
      continue;  // the results say why it was not run
    }
  }
}

// NCCL does not say beforehand; it took 0.4 GiB for each of 8 ranks.
void set_gpu_shares(const BenchStepFlags& a, const Ranks& ranks, int num_ranks,
                    StepBenchRequest& request) {
  constexpr int64_t kNcclBytes = int64_t{512} << 20;
  const bool nccl = ranks.transport() == "nccl";
  if (nccl) request.library_bytes = kNcclBytes;
  if (ranks.transport() == "thread") request.ranks_per_gpu = num_ranks;
  if (nccl && a.meeting.share_gpu) request.ranks_per_gpu = ranks.num_here();
}

Outcome run(const BenchStepFlags& a, const Output& out) {
  PlanArguments plan = a.plan;
  plan.link.clear();  // a LinkModel, added to the plan's options later
  plan.device = a.device;
  if (plan.collectives.empty() && a.device != "cpu") plan.collectives = "auto";
  bool speaks = true;
  Phases phases([&](const std::string& what) {
    if (speaks) out.progress(what);
  });
  if (!a.trace.empty()) check_late_file("--trace", a.trace, "");
  if (!a.flight_record.empty())
    check_late_file("--flight-record", a.flight_record, "");
  phases.begin("device");
  take_own_gpu(rank_options(a, 0, false));
  give_streams_connections(a.device);
  make_engine(a.device);  // throws if there is none
  PrecisionChoice precision;
  plan.settle = [&](const std::string& rule, RuleOptions& options) {
    precision = settle_precision(rule, a.device, options);
  };
  phases.begin("model and ranks");
  const PlanInput input = read_plan_input(plan);
  StepBenchRequest request = request_of(a, input, out);
  const bool links = request.link.has_value() || request.comm_ratio > 0;
  RankOptions meeting = rank_options(a, input.mesh.world(), links);
  meeting.communicator.ranks_per_node = input.options.ranks_per_node;
  const std::unique_ptr<TestFaults> faults = read_test_faults();
  meeting.gate = faults.get();
  const std::unique_ptr<Ranks> ranks = make_ranks(meeting);
  if (a.scaling && ranks->transport() != "thread")
    throw UsageError("--scaling runs one rank alone: use --transport thread");
  require_same_precision(*ranks, precision);
  request.run = ranks->runner();
  set_gpu_shares(a, *ranks, input.mesh.world(), request);
  speaks = ranks->speaks();
  if (!speaks) request.progress = [](const std::string&) {};
  phases.end();
  request.phases = &phases;
  std::unique_ptr<Trace> trace;
  if (!a.trace.empty()) trace = std::make_unique<Trace>();
  request.trial.runtime.trace = trace.get();

  if (a.audit && !a.plan.json && ranks->speaks()) show_audit(request, out);
  StepReport report{.model = input.model.name,
                    .mesh = input.mesh,
                    .rule = std::string(input.rule->name()),
                    .precision = precision,
                    .transport = ranks->transport(),
                    .trial = request.trial,
                    .bench = run_step_bench(request),
                    .audited = a.audit};
  for (StrategyBench& s : report.bench.strategies)
    s.error = with_flags(*a.plan.app, s.error);
  report.library_memory = ranks->library_memory();
  report.largest_library_bytes = largest_library_bytes(*ranks);
  out.progress("");
  if (trace != nullptr) out.save_trace(ranks->file_name(a.trace), *trace);
  ranks->finish();
  require_some(report.bench);
  if (!ranks->speaks()) return Outcome::kDone;
  for (const StrategyBench& s : report.bench.strategies)
    if (s.plan && input.options.zero.reach == Reach::kAuto) {
      out.note("collectives: " + collectives_text(*s.plan));
      break;
    }
  for (const std::string& warning : warnings_of(report))
    out.note("warning: " + warning);
  out.result(a.plan.json ? step_json(report) : step_text(report, out.ink()));
  return a.fast_reduce || digests_agree(report) ? Outcome::kDone
                                                : Outcome::kFailed;
}

void add_run_options(CLI::App& app, BenchStepFlags& a) {
  constexpr const char* kGroup = "How it is run";
  const auto text = [&](const char* name, auto& value, const char* label,
                        const char* description) {
    app.add_option(name, value, description)->option_text(label)->group(kGroup);
  };
  text("--transport", a.transport, "KIND",
       "thread, mpi, tcp or nccl: threads, or processes that a launcher has "
       "started [as the launcher wants it, nccl on cuda, else thread]");
  text("--device", a.device, "DEVICE",
       "cpu, or cuda: threads share the GPU, each process of nccl has one "
       "[cpu]");
  text("--steps", a.steps, "N", "steps in all; digests are taken after [5]");
  text("--warmup", a.warmup, "N", "of them, the first that are not timed [1]");
  text("--iterations", a.iterations, "N",
       "with forward and backward, after the steps [as many as timed steps]");
  text("--compute", a.compute, "SECONDS|products",
       "of forward and backward; products: on a GPU, their bf16 products "
       "[twice a step]");
  text("--tokens", a.tokens, "N", "of a rank, with --compute products [4096]");
  text("--gradients", a.gradients, "KIND", "exact or random [exact]");
  text("--clip", a.clip, "NORM", "clip the gradient to this norm, 0: no [0]");
  text("--wire", a.wire, "DTYPE", "of gradients on the wire [fp32]");
  text("--comm-ratio", a.comm_ratio, "X",
       "scale modelled links so that sending takes X times the compute");
  text("--deadline", a.deadline, "TIME",
       "of every collective; past it, exit status 4 [10min]");
  const auto flag = [&](const char* name, bool& value,
                        const char* description) {
    app.add_flag(name, value, description)->group(kGroup);
  };
  flag("--serial", a.serial, "wait for every exchange at once: no pipeline");
  flag("--with-serial", a.with_serial,
       "run every plan a second time, serially, for comparison");
  flag("--scaling", a.scaling,
       "run one rank alone, too: efficiency, and the machine's own");
  flag("--check-collectives", a.check_collectives,
       "ranks compare operation and sizes before every collective");
  flag("--fast-reduce", a.fast_reduce,
       "sums by MPI or NCCL itself: digests may differ, and are not compared");
  text("--flight-record", a.flight_record, "FILE",
       "write each rank's last operations if one fails");
  text("--trace", a.trace, "FILE",
       "write spans of all ranks, for ui.perfetto.dev");
  flag("--audit", a.audit, "show every tensor: rule, home, owner, cost");
  offer_words(app.get_option("--transport"), {"thread", "mpi", "tcp", "nccl"});
  offer_words(app.get_option("--gradients"), {"exact", "random"});
  offer_words(app.get_option("--wire"), {"fp32", "bf16"});
}

}  // namespace

Verb add_bench_step(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "step", "carry plans out on real ranks: time, traffic, memory, digests");
  auto arguments = std::make_shared<BenchStepFlags>();
  add_plan_arguments(*app, Planning::kRun, arguments->plan);
  add_run_options(*app, *arguments);
  add_rank_options(*app, arguments->meeting);
  app->footer(kBenchStepExamples + std::string("\n") + strategies_help() +
              "\n" + rules_help());
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli

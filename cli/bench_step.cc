// `canzona bench step`: plans executed by real ranks, and timed.
#include <algorithm>
#include <memory>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/bench/step_report.h"
#include "canzona/report/models_view.h"
#include "canzona/report/zero_view.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "cli/test_fault.h"
#include "cli/verbs.h"
#include "cli/with_flags.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchStepExamples =
    R"(Examples:
  canzona bench step --model qwen3-1.7b --scale 1/8 --layers 4 --mesh dp=2,tp=2
  canzona bench step --model qwen3-0.6b --layers 2 --mesh dp=4 --rule soap --steps 21 --json
  canzona bench step --model qwen3-0.6b --scale 1/4 --mesh tp=4 --strategy balanced \
    --comm-ratio 0.5 --compute 0 --trace step.json
  canzona bench step --model qwen3-0.6b --scale 1/8 --mesh dp=8 --zero 'zero1;hier:4;zero3' \
    --overlap all --ranks-per-node 4 --link intra=10GB/s,inter=1GB/s --comm-ratio 0.5
  mpirun -n 4 canzona bench step --model qwen3-0.6b --scale 1/8 --mesh dp=4
  mpirun -n 8 canzona bench step --model qwen3-1.7b --mesh dp=8 --device cuda
  canzona bench step --model qwen3-1.7b --layers 8 --mesh dp=4 --zero zero3 --overlap all \
    --device cuda --compute products --tokens 4096 --comm-ratio 0.5

Every strategy is run with all sizes of --zero and every --overlap. `step` runs from the last
reduced gradient to the last applied parameter; `with gather` also includes a gather of all
parameters that nothing hides; both are times of the slowest rank. `iteration` simulates
forward and backward by timed work: module by module, ranks sleep, as a host does while its
accelerator computes; forward gets a third of the time. On a GPU, the GPU idles for --compute
SECONDS, or, with --compute products, multiplies every matrix of a module in bf16 with
--tokens tokens, once forward and twice backward; ranks do not wait between iterations.
`hidden` is 1 - (time compute waited / time links were busy) in iterations; on a GPU, by the
GPU's clock. `covered` is the share of the links' time during which compute went on. `mean`
and `worst` are over a period of refreshes; use enough --steps to cover one.

Gradients are derived from names and positions. `exact`: 28 slices of small integers
x 2^-20, distributed over the data-parallel ranks; sums are exact, so every mesh gives the
same digest. `random`: different values on each rank; the digest depends on the number of
data-parallel ranks.

With --link or --comm-ratio, times are those of a modelled link: data is copied and added
at once, only its arrival is delayed. --comm-ratio X: links are scaled so that the busiest
port of the plan that is measured first, balanced with zero3 if it is among them, is busy for
X times as long as a rank computes in an iteration, including the step.

Exit status: 0 success, 1 plans give different digests that must give the same, 2 invalid
request, 4 a rank was lost or late.
)";

constexpr int kMostSteps = 1'000'000;
constexpr int64_t kTokensOfProducts = 4096;

struct BenchStepFlags {
  PlanArguments plan;
  std::string transport;
  std::string device = "cpu";
  RankOptions meeting;  // how processes meet and share GPUs
  std::string gradients = "exact";
  std::string wire = "fp32";
  std::string deadline;
  std::optional<double> comm_ratio;
  std::string compute;
  std::optional<int64_t> tokens;
  std::optional<double> clip;
  std::string trace;
  std::string flight_record;
  int steps = 5;
  std::optional<int64_t> warmup;      // 1, or 0 if there is only one step
  std::optional<int64_t> iterations;  // as many as timed steps
  bool serial = false;
  bool check_collectives = false;
  bool audit = false;
};

// True if forward and backward are products, which a CPU does not support.
bool is_of_products(const std::string& compute, const std::string& device) {
  if (compute != "products") return false;
  if (!device_kind(device).has_own_memory)
    throw UsageError(
        "--compute products: simulated forward and backward products need a "
        "GPU; add --device cuda, or give seconds");
  return true;
}

double parse_compute_seconds(const std::string& compute) {
  return parse_number(compute, 0, 1e6, "--compute (seconds, or products)");
}

// For a count that depends on another option.
void check_range(const char* option, int value, int low, int high) {
  if (value < low || value > high)
    throw UsageError(cat(option, " ", value, ": expected ", low, " to ", high));
}

StepTrialRequest trial_of(const BenchStepFlags& a) {
  StepTrialRequest trial;
  trial.gradients = parse_gradient_kind(a.gradients);
  trial.steps = a.steps;
  trial.warmup = static_cast<int>(a.warmup.value_or(a.steps > 1 ? 1 : 0));
  check_range("--warmup", trial.warmup, 0, a.steps - 1);
  trial.iterations =
      static_cast<int>(a.iterations.value_or(trial.steps - trial.warmup));
  trial.micro_batches = a.plan.micro_batches.value_or(1);
  if (a.clip) trial.clip_norm = *a.clip;
  trial.runtime.wire = a.wire == "bf16" ? DType::kBf16 : DType::kFp32;
  trial.runtime.pipelined = !a.serial;
  const bool multiplies = is_of_products(a.compute, a.device);
  if (!multiplies && a.tokens)
    throw UsageError("--tokens is only valid with --compute products");
  if (multiplies) trial.product_tokens = a.tokens.value_or(kTokensOfProducts);
  return trial;
}

// The plan's links are the modelled ones; nothing is assumed.
Link modelled_link(const BenchStepFlags& a, const PlanOptions& options) {
  if (a.plan.planner["link"].empty()) return {};
  return parse_link_model(a.plan.planner["link"], options.ranks_per_node);
}

PlanInput copy_of(const PlanInput& input) {
  PlanInput own = {input.model,   input.mesh,       nullptr,
                   input.options, input.cost_table, input.note};
  own.rule = make_rule_facts(input.rule->name(), input.rule->options());
  return own;
}

Plan plan_on_link(const PlanInput& input, const StepChoice& choice,
                  const Link& link) {
  PlanInput own = copy_of(input);
  own.options.zero.sizes = choice.sizes;
  put_link(link, own.options);
  return plan_once(own, choice.strategy).plan;
}

std::vector<Overlap> overlaps_of(const std::string& text) {
  const std::vector<Overlap> all = {Overlap::kNone, Overlap::kMain,
                                    Overlap::kBackground};
  const std::vector<std::string> known = {"none", "main", "background", "all"};
  if (text.empty()) return {Overlap::kBackground};
  std::vector<Overlap> overlaps;
  for (const std::string& word : split_text(text, ',')) {
    if (word == "all") return all;
    if (std::ranges::find(known, word) == known.end())
      throw UsageError(cat("--overlap ", quoted(word), ": expected ",
                           alternatives(known), did_you_mean(word, known)));
    overlaps.push_back(parse_overlap(word));
  }
  return overlaps;
}

// Every strategy with all sizes and every overlap.
std::vector<StepChoice> choices_of(const PlanArguments& a, const Mesh& mesh) {
  std::vector<ZeroSizes> sizes = {{}};
  if (!a.planner["zero"].empty())
    sizes = read_sizes(a.planner["zero"], mesh.homes());
  std::vector<StepChoice> choices;
  for (const std::string& name :
       known_strategies(a.planner["strategy"], "--strategy"))
    for (const ZeroSizes& one : sizes)
      for (const Overlap overlap : overlaps_of(a.planner["overlap"]))
        choices.push_back({name, one, overlap});
  return choices;
}

// Returns what the options ask for without the model, so that a contradiction
// is refused before anything begins.
StepBenchRequest request_of(const BenchStepFlags& a, const Mesh& mesh,
                            const Output& out) {
  StepBenchRequest request;
  request.choices = choices_of(a.plan, mesh);
  request.device = a.device;
  request.trial = trial_of(a);
  if (a.comm_ratio) request.comm_ratio = *a.comm_ratio;
  if (!a.compute.empty() && request.trial.product_tokens == 0)
    request.compute_seconds = parse_compute_seconds(a.compute);
  request.progress = [&out](const std::string& what) { out.progress(what); };
  if (!a.trace.empty() && request.choices.size() > 1)
    throw UsageError(cat("--trace records one plan, not ",
                         request.choices.size(),
                         "; choose one strategy, such as --strategy balanced, "
                         "one of --zero and one --overlap"));
  return request;
}

// The input must outlive the request.
void add_plans(const BenchStepFlags& a, const PlanInput& input,
               StepBenchRequest& request) {
  request.plan = [&input](const StepChoice& choice, const Link& link) {
    return plan_on_link(input, choice, link);
  };
  request.link = modelled_link(a, input.options);
}

RankOptions rank_options(const BenchStepFlags& a, int num_ranks, bool links) {
  RankOptions options = a.meeting;
  options.transport = a.transport;
  options.device = a.device;
  options.num_ranks = num_ranks;
  options.links = links;
  options.flight_record = a.flight_record;
  options.communicator.check_collectives = a.check_collectives;
  if (!a.deadline.empty())
    options.communicator.deadline = parse_deadline(a.deadline);
  return options;
}

// Throws UsageError, with the first reason, if no plan could be run.
void require_some(const StepBench& bench, const Mesh& mesh) {
  const bool any = std::ranges::any_of(
      bench.plans, [](const PlanBench& one) { return one.error.empty(); });
  if (any || bench.plans.empty()) return;
  const PlanBench& first = bench.plans.front();
  throw UsageError(cat("no strategy could be run; ",
                       name_of(first.choice, mesh.homes()), ": ", first.error));
}

// Shows every tensor of every plan before anything runs. With --json this is
// part of the object at the end.
void show_audit(const StepBenchRequest& request, const Output& out) {
  for (const StepChoice& choice : request.choices) {
    if (choice.overlap != request.choices.front().overlap) continue;
    try {
      out.result(print_text(audit_view(request.plan(choice, request.link)),
                            out.ink()) +
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
  plan.planner["link"]
      .clear();  // a LinkModel, added to the plan's options later
  plan.device = a.device;
  std::string& collectives = plan.planner["collectives"];
  if (collectives.empty() && device_kind(a.device).has_own_memory)
    collectives = "auto";
  bool speaks = true;
  Phases phases([&](const std::string& what) {
    if (speaks) out.progress(what);
  });
  if (!a.trace.empty()) check_late_file("--trace", a.trace, "");
  if (!a.flight_record.empty())
    check_late_file("--flight-record", a.flight_record, "");
  // Refused before anything begins.
  StepBenchRequest request = request_of(a, requested_mesh(plan), out);
  const RankOptions alone = rank_options(a, 0, false);
  phases.begin("device");
  take_own_gpu(alone);
  give_streams_connections(a.device);
  make_engine(a.device);  // throws if there is none
  PrecisionChoice precision;
  plan.settle = [&](const std::string& rule, RuleOptions& options) {
    precision = settle_precision(rule, a.device, options);
  };
  phases.begin("model and ranks");
  PlanInput input = read_plan_input(plan);
  if (const std::string& experts = plan.planner["zero-experts"];
      !experts.empty())
    input.options.zero.experts =
        parse_zero(experts, input.mesh.expert_homes(), "--zero-experts");
  add_plans(a, input, request);
  const bool links = request.link.has_value() || request.comm_ratio > 0;
  RankOptions meeting = rank_options(a, input.mesh.world(), links);
  meeting.communicator.ranks_per_node = input.options.ranks_per_node;
  const std::unique_ptr<TestFaults> faults = read_test_faults();
  meeting.gate = faults.get();
  const std::unique_ptr<Ranks> ranks = make_ranks(meeting);
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
                    .comm_ratio = request.comm_ratio,
                    .bench = run_step_bench(request),
                    .audited = a.audit};
  for (PlanBench& one : report.bench.plans)
    one.error = with_flags(*a.plan.app, one.error);
  out.progress("");
  if (trace != nullptr) out.save_trace(ranks->file_name(a.trace), *trace);
  ranks->finish();
  require_some(report.bench, report.mesh);
  if (!ranks->speaks()) return Outcome::kDone;
  for (const PlanBench& one : report.bench.plans)
    if (one.plan && input.options.zero.reach == Reach::kAuto) {
      out.note("collectives: " + collectives_text(*one.plan));
      break;
    }
  for (const std::string& warning : warnings_of(report))
    out.note("warning: " + warning);
  out.result(step_view(report), a.plan.json);
  return report.disagreement().empty() ? Outcome::kDone : Outcome::kFailed;
}

OptionRows run_options(BenchStepFlags& a) {
  return in_group(
      "Execution",
      {transport_option(a.transport,
                        ": threads, or processes that a launcher has started"),
       option(
           "--device", a.device, "DEVICE",
           "cpu or cuda; threads share one GPU, nccl processes have one each"),
       option("--steps", a.steps, "N",
              "total number of steps; digests are taken after the last")
           .between(1, kMostSteps),
       number("--warmup", a.warmup, 0, kMostSteps, "N",
              "first steps that are not timed")
           .by_default("1"),
       number("--iterations", a.iterations, 0, kMostSteps, "N",
              "iterations with forward and backward, run after the steps")
           .by_default("as many as timed steps"),
       option(
           "--compute", a.compute, "SECONDS|products",
           "time of forward and backward of an iteration, or products: their "
           "bf16 products, on a GPU")
           .by_default("twice a step"),
       number("--tokens", a.tokens, 1, 1 << 30, "N",
              "tokens per rank and micro-batch, with --compute products")
           .by_default(cat(kTokensOfProducts)),
       option("--gradients", a.gradients, "KIND", "exact or random")
           .offering({"exact", "random"}),
       number("--clip", a.clip, 0, 1e30, "NORM",
              "clip the gradient to this norm; 0: no clipping")
           .by_default("0"),
       option("--wire", a.wire, "DTYPE",
              "dtype of gradients on the wire: fp32 or bf16")
           .only({"fp32", "bf16"}),
       number("--comm-ratio", a.comm_ratio, 1e-6, 1e6, "X",
              "scale modelled links so that sending takes X times the "
              "compute"),
       deadline_option(a.deadline),
       flag("--serial", a.serial,
            "wait for each exchange immediately: no pipelining"),
       flag(
           "--check-collectives", a.check_collectives,
           "compare operation and sizes between ranks before every collective"),
       option("--flight-record", a.flight_record, "FILE",
              "write each rank's last operations if one fails"),
       option("--trace", a.trace, "FILE",
              "write spans of all ranks, for ui.perfetto.dev"),
       flag("--audit", a.audit, "show every tensor: rule, home, owner, cost")});
}

}  // namespace

Verb add_bench_step(CLI::App& bench) {
  auto arguments = std::make_shared<BenchStepFlags>();
  BenchStepFlags& a = *arguments;
  const Verb added = add_verb(
      bench,
      {.name = "step",
       .description = "run plans on real ranks: time, traffic, memory, digests",
       .options = joined({plan_options(Planning::kRun, a.plan), run_options(a),
                          meeting_options(a.meeting)}),
       .footer =
           cat(kBenchStepExamples, "\n", strategies_help(), "\n", rules_help()),
       .run = [arguments](const Output& out) { return run(*arguments, out); }});
  a.plan.app = added.app;
  return added;
}

}  // namespace canzona::cli

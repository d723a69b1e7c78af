// `canzona bench`: Newton–Schulz in all its forms on one shape (transform), a
// whole step of a rule (rule), operations between ranks (collectives).
// bench_step.cc and bench_decoder.cc have the others.
#include <algorithm>
#include <memory>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/bench/machine_report.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/ranks.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchExamples =
    R"(Examples:
  canzona bench transform --shape 1024x3072
  canzona bench transform --shape 128x512 --batch 16 --precision bf16 --threads 2
  canzona bench transform --shape 2048x6144 --algorithm gram --json
  canzona bench transform --shape 2048x6144 --batch 16 --device cuda
  canzona bench rule --model qwen3-0.6b --layers 1 --rule muon
  canzona bench rule --model qwen3-1.7b --rule muon --device cuda --json
  canzona bench step --help
  canzona bench collectives --help
  canzona bench decoder --help

Transform: times are for the whole batch, the fastest of all rounds: CPU time with
one thread, wall-clock time with several. The error is that of the first matrix
against the same schedule in fp64. The floor is the time the algorithm's flops take
at the best rate measured here for such products, or the time to read the input and
write the result, whichever is longer. Each row uses the precision it names; the
last line says which algorithm and precision the rule chooses here, and why.

Rule: times a whole step of one rank that owns all matrices of the model. Weights
and states are fp32; Muon's products use --precision (the header shows what ran). On
a GPU, all matrices of one shape form a batch and the step is captured in a graph.
The floor is the time of the flops at the best rate measured for such products, plus
the time of the bytes at the rate of a copy.
)";

struct Arguments {
  std::string what;
  std::string device = "cpu";
  std::string shape;
  int64_t batch = 1;
  std::string algorithm = "all";
  std::string precision;  // empty: not given
  int threads = 1;
  int rounds = 10;
  std::string model;
  std::string rule = kDefaultRule;
  int layers = 0;   // 0: all
  int engines = 0;  // 0: the device's default
  bool no_graph = false;
  bool rounded = false;
  std::vector<std::string> options;
  bool json = false;
};

using Words = std::vector<std::string>;

MatrixShape parse_shape(const std::string& text) {
  constexpr int64_t kLongest = int64_t{1} << 24;
  const std::vector<std::string> sides = split_text(text, 'x');
  if (sides.size() != 2)
    throw UsageError(cat("--shape ", quoted(text),
                         ": expected ROWSxCOLS, such as 2048x6144"));
  return {parse_integer(sides[0], 1, kLongest, "--shape"),
          parse_integer(sides[1], 1, kLongest, "--shape")};
}

// Returns one of the words, or all of them.
std::vector<std::string> choose(const std::string& wanted,
                                const std::vector<std::string>& words,
                                const char* flag) {
  if (wanted == "all") return words;
  for (const std::string& word : words)
    if (word == wanted) return {word};
  throw UsageError(cat(flag, " ", quoted(wanted), ": expected ",
                       join(words, ", "), " or all",
                       did_you_mean(wanted, words)));
}

TransformRequest request_of(const Arguments& a) {
  if (a.shape.empty())
    throw UsageError("canzona bench transform: --shape is missing");
  if (device_kind(a.device).computes_batches && a.threads != 1)
    throw UsageError(cat(
        "--threads ", a.threads,
        " with --device cuda: a GPU runs the whole batch at once; expected 1"));
  TransformRequest request;
  request.device = a.device;
  request.shape = parse_shape(a.shape);
  request.batch = a.batch;
  request.algorithms =
      choose(a.algorithm, {"standard", "symmetric", "gram"}, "--algorithm");
  request.precisions =
      choose(a.precision.empty() ? "all" : a.precision,
             device_kind(a.device).has_fp16 ? Words{"fp32", "bf16", "fp16"}
                                            : Words{"fp32", "bf16"},
             "--precision");
  request.num_threads = a.threads;
  request.rounds = a.rounds;
  request.options = parse_rule_options(a.options);
  return request;
}

// Includes what the rule itself runs on this shape here.
TransformReport measure_report(const TransformRequest& request,
                               const Progress& progress) {
  check_transform(request);
  progress("measuring the machine");
  const auto measured = device_kind(request.device).has_own_memory
                            ? measure_gpu_rates
                            : measure_rates;
  TransformReport report{.request = request, .machine = machine_info()};
  const MachineRates before = measured();
  report.rows = measure_transform(request, progress);
  report.rates = best_of(before, measured());
  RuleOptions options =
      with_device(kTransformRule, request.options, request.device);
  report.precision = settle_precision(kTransformRule, request.device, options);
  report.algorithm =
      make_rule_facts(kTransformRule, options)->algorithm(request.shape);
  return report;
}

Outcome run_transform(const Arguments& arguments, const Output& out) {
  const TransformReport report =
      measure_report(request_of(arguments),
                     [&](const std::string& what) { out.progress(what); });
  out.progress("");
  const BlasInfo& blas = report.machine.blas;
  if (blas.fallback_core)
    out.note(cat("warning: OpenBLAS runs its kernels for ", blas.core,
                 "; these times are not representative"));
  out.result(transform_view(report), arguments.json);
  return Outcome::kDone;
}

// A whole step of a rule on all matrices of a model.

std::vector<Dims> tensors_of(const Arguments& a) {
  if (a.model.empty())
    throw UsageError("canzona bench rule: --model is missing");
  const Model model = read_model(a.model, {});
  if (a.layers < 0 || a.layers > model.num_layers)
    throw UsageError(cat("--layers ", a.layers, ": ", model.name, " has ",
                         model.num_layers));
  std::vector<Dims> dims;
  for (const Tensor& tensor : model.tensors)
    if (tensor.matrix_rule && (a.layers == 0 || tensor.layer < a.layers))
      dims.push_back(tensor.shape);
  if (dims.empty())
    throw UsageError(cat("--model ", quoted(a.model),
                         ": the model has no matrices for the rule"));
  return dims;
}

// --precision is an option of the rule; rules without it have only one.
void put_precision(const Arguments& a, RuleOptions& options) {
  if (a.precision.empty()) return;
  const auto rule = std::ranges::find(rule_table(), a.rule, &RuleEntry::name);
  if (rule == rule_table().end()) return;  // refused where the rule is made
  const auto fact =
      std::ranges::find(rule->options, "precision", &OptionFact::name);
  if (fact == rule->options.end())
    throw UsageError(cat("--precision ", quoted(a.precision), ": ", a.rule,
                         " has no such option and computes in fp32; leave it "
                         "out"));
  const std::vector<std::string> known = split_text(fact->allowed, '|');
  if (std::ranges::find(known, a.precision) == known.end())
    throw UsageError(cat("--precision ", quoted(a.precision), ": expected ",
                         join(known, ", "), did_you_mean(a.precision, known)));
  const auto given = options.find("precision");
  if (given != options.end() && given->second != a.precision)
    throw UsageError(
        cat("--precision ", quoted(a.precision),
            " contradicts --rule-option precision=", given->second));
  options["precision"] = a.precision;
}

RuleStepRequest rule_request_of(const Arguments& a,
                                PrecisionChoice& precision) {
  constexpr int kMostEngines = 16;
  if (a.engines < 0 || a.engines > kMostEngines)
    throw UsageError(
        cat("--engines ", a.engines, ": expected 1 to ", kMostEngines));
  RuleStepRequest request;
  request.rule = a.rule;
  request.options = parse_rule_options(a.options);
  put_precision(a, request.options);
  precision = settle_precision(a.rule, a.device, request.options);
  if (!a.precision.empty() && a.precision != "auto")
    precision.why = "--precision";
  request.device = a.device;
  request.tensors = tensors_of(a);
  request.rounds = a.rounds;
  request.num_engines =
      a.engines > 0 ? a.engines : device_kind(a.device).num_engines;
  request.graph = !a.no_graph;
  request.rounded = a.rounded;
  return request;
}

Outcome bench_rule(const Arguments& arguments, const Output& out) {
  RuleStepReport report{.model = arguments.model};
  report.request = rule_request_of(arguments, report.precision);
  report.step = measure_rule_step(
      report.request, [&](const std::string& what) { out.progress(what); });
  out.progress("");
  out.result(rule_step_view(report), arguments.json);
  return Outcome::kDone;
}

// Options of one kind of bench alone.
OptionRows rule_options(Arguments& a) {
  return {
      option("--model", a.model, "MODEL",
             "rule: a preset or a file, as for canzona plan"),
      option("--rule", a.rule, "RULE", "rule: the rule to time"),
      option("--layers", a.layers, "COUNT",
             "rule: number of layers to use, from the first")
          .by_default("all"),
      option("--engines", a.engines, "COUNT",
             "rule: engines that shapes are distributed over")
          .by_default("2 on cuda"),
      flag("--no-graph", a.no_graph,
           "rule: issue every call in every step instead of replaying a graph"),
      flag("--bf16-params", a.rounded, "rule: also write the weights in bf16")};
}

OptionRows transform_options(Arguments& a) {
  constexpr int kMostThreads = 1024, kMostMatrices = 1'000'000;
  return {option("--shape", a.shape, "ROWSxCOLS", "shape of the matrices"),
          option("--batch", a.batch, "COUNT", "number of matrices")
              .between(1, kMostMatrices),
          option("--algorithm", a.algorithm, "FORM",
                 "standard, symmetric, gram or all")
              .offering({"standard", "symmetric", "gram", "all"}),
          option("--threads", a.threads, "COUNT",
                 "threads that matrices are distributed over")
              .between(1, kMostThreads)};
}

// Refuses an option that only the other kind of bench takes, because it would
// do nothing here.
void refuse_idle_options(const CLI::App& app, const std::string& what) {
  const bool rule = what == "rule";
  Arguments unused;
  for (const OptionRow& row :
       rule ? transform_options(unused) : rule_options(unused))
    if (app.get_option(row.name)->count() > 0)
      throw UsageError(cat("canzona bench ", what, " has no ", row.name,
                           ": it is ", "an option of canzona bench ",
                           rule ? "transform" : "rule",
                           rule && row.name == "--algorithm"
                               ? "; try --rule-option newton_schulz=gram"
                               : ""));
}

Outcome run(const Arguments& arguments, const CLI::App& app,
            const Output& out) {
  if (arguments.what == "transform" || arguments.what == "rule")
    refuse_idle_options(app, arguments.what);
  if (arguments.what == "transform") return run_transform(arguments, out);
  if (arguments.what == "rule") return bench_rule(arguments, out);
  if (arguments.what.empty())
    throw UsageError(
        "canzona bench: expected transform, rule, step or collectives");
  throw UsageError(cat("canzona bench ", quoted(arguments.what),
                       ": expected transform, rule, step or collectives",
                       did_you_mean(arguments.what, {"transform", "rule",
                                                     "step", "collectives"})));
}

// `canzona bench collectives`: how long operations between ranks take.

constexpr const char* kBenchCollectivesExamples =
    R"(Examples:
  canzona bench collectives --ranks 4 --bytes 64MiB
  mpirun -n 4 canzona bench collectives --ranks 4 --json
  mpirun -n 8 canzona bench collectives --ranks 8 --device cuda --bytes 256MiB
  mpirun -n 4 canzona bench collectives --ranks 4 --device cuda --share-gpu
  canzona bench collectives --ranks 4 --model qwen3-8b

Times every operation with pieces of equal and of unequal sizes: gathers, all-to-all, and
sums of fp32, both in the fixed order that gives the same bits everywhere (`exact`) and by
the library behind the transport (`library`: MPI, NCCL) if it has sums of its own. `sent`
is the largest number of bytes any rank sends, `time` that of the slowest rank, the best
of all rounds; `of a copy` is the rate relative to a copy in the device's own memory.
Results are checked before anything is timed. With --model, pieces are also cut (`planned`) as
`balanced` cuts the largest bucket of matrices of this model over so many ranks with Muon.

Exit status: 0 success, 2 invalid request, 4 a rank was lost or late.
)";

struct BenchCollectivesFlags {
  RankOptions ranks;
  std::string model;
  std::string bytes = "64MiB";
  std::string deadline;
  int rounds = 5;
  bool json = false;
};

// Returns how many elements each rank keeps of the bucket with the largest
// matrices' region if `balanced` plans the model over data-parallel ranks.
std::vector<int64_t> shares_of_largest_bucket(const std::string& model,
                                              int num_ranks) {
  PlanArguments arguments;
  arguments.model = model;
  arguments.mesh = cat("dp=", num_ranks);
  const PlanInput input = read_plan_input(arguments);
  const Plan plan = make_plan(input.request());
  const Bucket& largest = *std::ranges::max_element(
      plan.parts.front().buckets, {},
      [](const Bucket& bucket) { return bucket.cuts.back(); });
  if (largest.cuts.back() == 0)
    throw UsageError(cat("--model ", quoted(model),
                         ": expected a model with matrices of the rule ",
                         input.rule->name(), ", but it has none"));
  std::vector<int64_t> shares;
  for (size_t home = 0; home + 1 < largest.cuts.size(); ++home)
    shares.push_back(largest.cuts[home + 1] - largest.cuts[home] +
                     largest.adamw_cuts[home + 1] - largest.adamw_cuts[home]);
  return shares;
}

Outcome run(const BenchCollectivesFlags& a, const Output& out) {
  RankOptions options = a.ranks;
  if (!a.deadline.empty())
    options.communicator.deadline = parse_deadline(a.deadline);
  const bool library = has_own_sums(options);
  options.communicator.fast_reduce = library;
  const std::unique_ptr<Ranks> ranks = make_ranks(options);
  CollectivesRequest request{.run = ranks->runner(),
                             .num_ranks = options.num_ranks,
                             .device = options.device,
                             .bytes = parse_bytes(a.bytes, "--bytes"),
                             .rounds = a.rounds,
                             .fast = library,
                             .make_lane = lanes_of(options.device)};
  check_request(request);  // before a plan is made for it
  if (!a.model.empty()) {
    request.shares = shares_of_largest_bucket(a.model, options.num_ranks);
    request.shares_name = "planned";
  }
  if (ranks->speaks())
    request.progress = [&out](const std::string& what) { out.progress(what); };
  CollectivesReport report{.transport = ranks->transport(),
                           .device = options.device,
                           .model = a.model,
                           .num_ranks = options.num_ranks,
                           .bytes = request.bytes,
                           .rounds = a.rounds,
                           .measured = measure_collectives(request)};
  report.library_memory = ranks->library_memory();
  report.largest_library_bytes = largest_library_bytes(*ranks);
  out.progress("");
  if (report.transport == "nccl") report.library = nccl_description();
  std::string why_not;
  if (const auto gpu = find_cuda_device(&why_not);
      gpu && device_kind(options.device).has_own_memory)
    report.device = gpu->name;
  ranks->finish();
  if (!ranks->speaks()) return Outcome::kDone;
  out.result(collectives_view(report), a.json);
  return Outcome::kDone;
}

OptionRows options_of(BenchCollectivesFlags& a) {
  return joined(
      {{option("--ranks", a.ranks.num_ranks, "COUNT", "number of ranks")
            .between(1, 1 << 20),
        option("--bytes", a.bytes, "SIZE", "size of a rank's whole buffer"),
        option("--model", a.model, "MODEL",
               "also with pieces of the sizes that a plan of this model has"),
        option("--rounds", a.rounds, "COUNT",
               "rounds to time; the fastest counts")
            .between(1, 100'000),
        device_option(a.ranks.device,
                      "device whose memory is used: cpu or cuda"),
        transport_option(a.ranks.transport, "")},
       meeting_options(a.ranks),
       {deadline_option(a.deadline), json_flag(a.json)}});
}

Verb add_bench_collectives(CLI::App& bench) {
  return add_verb_of<BenchCollectivesFlags>(
      bench, {.name = "collectives",
              .description = "time every collective, in exact order and "
                             "by the transport's library",
              .footer = kBenchCollectivesExamples});
}

// All of `canzona bench`.

// Help lists --threads beside --rounds.
OptionRows options_of(Arguments& a) {
  OptionRows transform = transform_options(a);
  const OptionRow threads = transform.back();
  transform.pop_back();
  return joined(
      {{argument("WHAT", a.what,
                 "transform: Newton-Schulz on one shape; rule: a whole step on "
                 "one rank")
            .offering({"transform", "rule"}),
        device_option(a.device, "cpu or cuda")},
       rule_options(a),
       transform,
       {option("--precision", a.precision, "TYPE",
               "fp32 or bf16, on cuda also fp16; transform: or all [all]; "
               "rule: precision of Muon's products, or auto")
            .offering({"fp32", "bf16", "fp16", "all", "auto"})
            .by_default("auto"),
        threads,
        option("--rounds", a.rounds, "COUNT",
               "rounds to time; the fastest counts")
            .between(1, 100'000),
        option("--rule-option", a.options, "NAME=VALUE",
               "option of the rule, such as coefficients=quintic; repeatable"),
        json_flag(a.json)}});
}

}  // namespace

Verb add_bench(CLI::App& root) {
  auto a = std::make_shared<Arguments>();
  return add_verb(
      root, {.name = "bench",
             .description = "time rules, steps and collectives on this machine",
             .options = options_of(*a),
             .footer = kBenchExamples,
             .below = {add_bench_step, add_bench_collectives,
                       add_bench_decoder},
             .run = [a, &root](const Output& out) {
               return run(*a, *root.get_subcommand("bench"), out);
             }});
}

}  // namespace canzona::cli

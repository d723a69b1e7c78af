// `canzona bench zero`: iterations of training with every ZeRO size, timed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/zero.h"
#include "canzona/report/bench/zero_report.h"
#include "canzona/rules/facts.h"
#include "canzona/train/config.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/train_rank.h"
#include "cli/bench.h"
#include "cli/config.h"
#include "cli/options.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
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
  canzona bench zero --mesh dp=4 --zero 'zero1;hier:2;zero3' --device cuda --tokens 4096 \
    --set model.hidden=2048 --set model.length=4096 --comm-ratio 0.5

Every cell (sizes and overlap) trains the decoder on thread ranks. Each of the --repeat
rounds runs all cells in turn: warm-up iterations, then --steps timed ones. `iteration` is
the slowest rank's time, the median over all timed iterations; `hidden` is 1 - (time
compute waited / time links were busy), `covered` the share of the links' time during
which compute ran, `in step` the hidden share of the gathers and scatters of matrices.
`slow bytes` are those sent to other nodes (of --ranks-per-node ranks).

With --link or --comm-ratio, times are those of a modelled link: data is copied and added
at once, only its arrival is delayed. --comm-ratio X: links are scaled so that the busiest
port of zero3 (or of the first sizes given) is busy X times as long as a rank computes;
compute is measured first, without links.

On a GPU (--device cuda) nothing is trained: every module multiplies its matrices in bf16
with the micro-batch's tokens, once forward and twice backward, and writes its gradients;
or, with --compute SECONDS, the GPU idles for that long in each micro-batch. Everything
else is the real runtime, which only issues work: `background` gathers as far ahead as
there are slots, with `none` the GPU waits for every operation at once. Times are the
GPU's. On a CPU, forward and backward are the model's own, and --compute is not allowed.

Exit status: 0 success, 1 cells that must have the same digest do not, 2 invalid request,
4 a rank was lost or late.
)";

struct ZeroArguments {
  std::string preset = "tiny";
  std::string mesh;
  std::string rule = kDefaultRule;
  std::string strategy;
  std::string teams;
  std::string exchange;
  std::vector<std::string> set;
  std::vector<std::string> rule_options;
  std::vector<std::string> zero;
  std::string zero_experts;
  std::vector<std::string> overlap;
  std::string message = "module";
  std::string prefetch = "auto";
  std::string replica_sum = "scatter";
  std::string collectives = "direct";
  std::string link;
  std::optional<double> comm_ratio;
  std::string device = "cpu";
  bool split_gpu = false;
  std::string compute;
  std::optional<int64_t> tokens;
  std::string limit;
  std::string deadline;
  std::string trace;
  int ranks_per_node = 0;
  int micro_batches = 1;
  int steps = 3;
  int warmup = 1;
  int repeats = 5;
  bool json = false;
  const CLI::App* app = nullptr;  // the verb, when it was declared
};

// Treats "a;b" and a repeated option alike.
std::vector<std::string> words_of(const char* option,
                                  const std::vector<std::string>& given) {
  std::vector<std::string> words;
  for (const std::string& text : given)
    for (const std::string& word : split_text(text, ';')) {
      if (word.empty())
        throw UsageError(cat(option, " ", quoted(text),
                             ": expected a value on each side of ';'"));
      words.push_back(word);
    }
  return words;
}

// Refuses keys that the bench sets itself, or does not use.
void refuse_idle_key(const std::vector<ConfigKey>& keys, const CLI::App& app,
                     const Setting& setting) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(cat("--set ", setting.key, ": canzona bench zero ", why));
  };
  const auto key = std::ranges::find(keys, setting.key, &ConfigKey::name);
  if (key == keys.end()) return;  // refused with all unknown keys
  const std::string& option = key->option.name;
  if (!option.empty() && app.get_option_no_throw(option) != nullptr)
    refuse(cat("has an option for it, ", option));
  if (key->name == "batch.global") refuse("sets it by --micro-batches");
  if (key->name == "ranks") refuse("has as many ranks as --mesh");
  const std::string section = key->name.substr(0, key->name.find('.'));
  for (const char* idle : {"eval", "log", "run", "save", "transport"})
    if (section == idle)
      refuse("trains on threads, and neither evaluates nor saves anything");
}

Settings settings_of(const ZeroArguments& a) {
  Settings given;
  TrainConfig defaults;
  const std::vector<ConfigKey> keys = config_keys(defaults);
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty())
      given.push_back({key, RawText{value}, find_key(keys, key).option.name});
  };
  set("preset", a.preset);
  set("rule.name", a.rule);
  set("plan.strategy", a.strategy);
  set("plan.teams", a.teams);
  set("plan.exchange", a.exchange);
  for (const std::string& text : a.set) {
    given.push_back(parse_setting(text, "--set"));
    refuse_idle_key(keys, *a.app, given.back());
  }
  for (Setting& option : rule_option_settings(a.rule_options))
    given.push_back(std::move(option));
  return given;
}

void check_arguments(const ZeroArguments& a) {
  if (a.mesh.empty())
    throw UsageError("--mesh is required, such as --mesh dp=8");
  if (!a.compute.empty() && !is_of_products(a.compute, a.device) &&
      device_kind(a.device).trains_models)
    throw UsageError(
        "--compute is only valid with --device cuda: on a CPU, forward and "
        "backward are the model's own");
  if (a.split_gpu && !device_kind(a.device).has_own_memory)
    throw UsageError("--split-gpu is only valid with --device cuda");
}

std::vector<ZeroSizes> zero_sizes(const ZeroArguments& a, int32_t homes) {
  std::vector<ZeroSizes> sizes;
  for (const std::string& word : words_of("--zero", a.zero)) {
    if (word == "all") return all_zero_sizes(homes);
    const ZeroSizes one =
        with_states(parse_zero(word, homes, "--zero", "all"), homes);
    check_zero(one, homes);
    sizes.push_back(one);
  }
  return sizes.empty() ? all_zero_sizes(homes) : sizes;
}

std::vector<std::string> overlap_words() {
  std::vector<std::string> words = key_words("zero.overlap");
  words.emplace_back("all");
  return words;
}

std::vector<Overlap> zero_overlaps(const ZeroArguments& a) {
  const std::vector<Overlap> all = {Overlap::kNone, Overlap::kMain,
                                    Overlap::kBackground};
  const std::vector<std::string> known = overlap_words();
  std::vector<Overlap> overlaps;
  for (const std::string& word : words_of("--overlap", a.overlap)) {
    if (word == "all") return all;
    if (std::ranges::find(known, word) == known.end())
      throw UsageError(cat("--overlap ", quoted(word), ": expected ",
                           alternatives(known), did_you_mean(word, known)));
    overlaps.push_back(parse_overlap(word));
  }
  return overlaps.empty() ? all : overlaps;
}

// Uses a batch of --micro-batches on every data-parallel rank, each of --tokens
// if given, otherwise of the preset's batch.micro, which need not fit the mesh.
TrainConfig zero_config(const ZeroArguments& a) {
  Settings given = settings_of(a);
  const TrainConfig config = make_settled_config(given);
  int64_t micro = config.batch.micro;
  if (a.tokens) {
    const int64_t length = config.model.length;
    if (*a.tokens % length != 0)
      throw UsageError(cat("--tokens ", *a.tokens,
                           ": expected a multiple of the sequence length, ",
                           length));
    micro = *a.tokens / length;
  }
  const int64_t all = micro * a.micro_batches * parse_mesh(a.mesh).homes();
  given.push_back({"mesh", RawText{a.mesh}, "--mesh"});
  given.push_back({"batch.micro", micro, "--tokens"});
  given.push_back({"batch.global", all, "--micro-batches"});
  return make_settled_config(std::move(given));
}

constexpr int kMostIterations = 1'000'000;

OptionRows trained_options(ZeroArguments& a) {
  const auto words = key_words;
  return in_group(
      "Training",
      {option("--preset", a.preset, "NAME", "preset of canzona train")
           .offering(words("preset")),
       option("--mesh", a.mesh, "AXES",
              "mesh of ranks, such as dp=8 or dp=4,tp=2"),
       option("--rule", a.rule, "RULE", "rule for matrices"),
       option("--rule-option", a.rule_options, "NAME=VALUE",
              "option of the rule; repeatable"),
       option("--strategy", a.strategy, "NAME", "strategy of the plan")
           .offering(words("plan.strategy"))
           .by_default("balanced"),
       option("--teams", a.teams, "SIZE",
              "let 2, 4 or 8 ranks of a home and node share a matrix by its "
              "strips where that is predicted to be 3 % quicker: off, auto, or "
              "the largest size")
           .offering(words("plan.teams"))
           .by_default("off"),
       option("--exchange", a.exchange, "HOW",
              "how tp ranks exchange matrices: rounds; strips, which cuts the "
              "first and the last round into strips; or auto, strips if the "
              "predicted step is 1 % shorter")
           .offering(words("plan.exchange"))
           .by_default("rounds"),
       option("--set", a.set, "KEY=VALUE",
              "a key of the training configuration; repeatable"),
       option("--micro-batches", a.micro_batches, "N",
              "micro-batches per rank and step")
           .between(1, kMostIterations),
       number("--tokens", a.tokens, 1, 0x1p40, "N",
              "tokens per micro-batch of a data-parallel rank")
           .by_default("the preset's")});
}

// A cell takes one of the sizes and of the overlaps; each option may list
// several.
OptionRows cut_options(ZeroArguments& a) {
  const auto words = key_words;
  return in_group(
      "Sharding",
      {option("--zero", a.zero, "SIZES",
              "sizes: none, zero1, zero2, zero3, replica:Z, hier:Z, "
              "z1=A,z2=B,z3=C or all; separate several by ';'")
           .offering({"none", "zero1", "zero2", "zero3", "all"})
           .by_default("all"),
       option("--overlap", a.overlap, "MODES",
              "overlap: none, main, background or all; separate several by ';'")
           .offering(overlap_words())
           .by_default("all"),
       option("--zero-experts", a.zero_experts, "SIZES",
              "sizes for experts, over their own data-parallel ranks")
           .by_default("on the ranks of dense tensors"),
       option("--message", a.message, "UNIT", "what one message carries")
           .one_of(words("zero.message")),
       option("--prefetch", a.prefetch, "K",
              "modules to gather ahead of the one in use"),
       option("--replica-sum", a.replica_sum, "KIND",
              "how gradients are summed over groups")
           .one_of(words("zero.replica_sum")),
       option("--collectives", a.collectives, "KIND",
              "how sums and gathers reach other nodes: direct, to every rank; "
              "node, once per node; auto, node if every group has a power of "
              "two of ranks on each node")
           .offering(words("zero.collectives")),
       option("--ranks-per-node", a.ranks_per_node, "N",
              "consecutive ranks that share a node with fast links")
           .between(0, kMostIterations)
           .by_default("all"),
       option("--link", a.link, "RATES",
              "model links, such as intra=2GB/s,inter=0.2GB/s,latency=20us"),
       number("--comm-ratio", a.comm_ratio, 1e-6, 1e6, "X",
              "scale modelled links so that sending takes X times the "
              "compute")});
}

OptionRows measured_options(ZeroArguments& a) {
  return in_group(
      "Measurement",
      {device_option(a.device,
                     "cpu or cuda; ranks are threads, which share the GPU"),
       flag("--split-gpu", a.split_gpu,
            "give each rank an equal share of the GPU's multiprocessors"),
       option("--compute", a.compute, "SECONDS|products",
              "forward and backward of a micro-batch on a GPU: seconds to "
              "idle, or every module's bf16 products")
           .by_default("products"),
       option("--steps", a.steps, "N", "timed iterations per round")
           .between(1, kMostIterations),
       option("--warmup", a.warmup, "N", "untimed iterations before them")
           .between(0, kMostIterations),
       option("--repeat", a.repeats, "N", "number of rounds")
           .between(1, kMostIterations),
       option(
           "--limit", a.limit, "TIME",
           "time limit: after the first round, begin none that would exceed it")
           .by_default("none"),
       deadline_option(a.deadline),
       option("--trace", a.trace, "FILE",
              "write spans of the last cell, for ui.perfetto.dev"),
       json_flag(a.json)});
}

// Returns the effective options on a GPU: what was resolved for this CPU is
// resolved again.
PrecisionChoice move_to_gpu(const ZeroArguments& a, const Plan& plan,
                            RuleOptions& options) {
  const bool is_given = std::ranges::any_of(
      a.rule_options,
      [](const std::string& text) { return text.starts_with("precision="); });
  if (!is_given) options.erase("precision");
  if (options.contains("device")) options["device"] = a.device;
  return settle_precision(plan.rule, a.device, options);
}

// What is planned anew for every cell.
struct CellOptions {
  ZeroOptions zero = {};
  int32_t teams = kTeamsOff;
  ExchangeBy exchange = ExchangeBy::kRounds;
};

// Returns the plan of a training run with other options and links.
Plan plan_with(const Plan& plan, const RuleOptions& rule_options,
               const CellOptions& cell, const Link& link, int ranks_per_node) {
  const auto rule = make_rule_facts(plan.rule, rule_options);
  PlanOptions options = plan.options;
  options.teams = cell.teams;
  options.exchange = cell.exchange;
  options.zero = cell.zero;
  options.ranks_per_node = ranks_per_node;
  put_link(link, options);
  return make_plan({plan.model, plan.mesh, *rule, options});
}

// Uses modules of the job's shapes on the GPU instead of training.
void put_on_gpu(const ZeroArguments& a, const TrainJob& job,
                ZeroBenchRequest& request) {
  if (device_kind(a.device).trains_models) return;
  request.make_engine = [device = a.device] { return make_engine(device); };
  request.split_gpu = a.split_gpu;
  request.wants_limits = false;
  if (a.compute.empty() || is_of_products(a.compute, a.device))
    request.compute.tokens = job.settings.decoder.tokens();
  else
    request.compute.seconds = parse_compute_seconds(a.compute);
  if (const auto gpu = find_cuda_device(nullptr))
    request.device_bytes = gpu->free_bytes;
}

ZeroBenchRequest request_of(const ZeroArguments& a, const TrainJob& job,
                            const RuleOptions& rule_options, CellOptions cell,
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
  if (a.comm_ratio) request.comm_ratio = *a.comm_ratio;
  ZeroOptions& zero = cell.zero;
  zero.message = parse_message_unit(a.message);
  zero.prefetch = parse_prefetch(a.prefetch);
  zero.replica_sum = parse_replica_sum(a.replica_sum);
  if (!a.zero_experts.empty())
    zero.experts =
        parse_zero(a.zero_experts, mesh.expert_homes(), "--zero-experts");
  zero.reach = parse_reach(a.collectives);
  request.plan = [&job, rule_options, cell, ranks_per_node](
                     const ZeroSizes& sizes, const Link& link) mutable {
    cell.zero.sizes = sizes;
    return plan_with(job.plan, rule_options, cell, link, ranks_per_node);
  };
  put_on_gpu(a, job, request);
  request.trial = {.warmup = a.warmup, .steps = a.steps};
  request.repeats = a.repeats;
  if (!a.limit.empty())
    request.limit_seconds = parse_duration(a.limit, "--limit");
  request.progress = [&out](const std::string& what) { out.progress(what); };
  return request;
}

ZeroReport report_of(const ZeroArguments& a, const TrainConfig& config,
                     const PrecisionChoice& precision, const TrainJob& job,
                     const ZeroBenchRequest& request) {
  return {.model = model_name(config),
          .num_parameters = job.num_parameters(),
          .rule = config.rule.name,
          .precision = precision,
          .strategy = config.plan.strategy,
          .reach = parse_reach(a.collectives),
          .device = a.device,
          .request = request,
          .bench = run_zero_bench(request)};
}

// Needed by training, but not by modules on a GPU.
struct TrainingInput {
  explicit TrainingInput(const TrainConfig& config)
      : tokens(open_tokens(config.data.path, token_options_of(config))),
        batches(*tokens, {.length = config.model.length,
                          .seed = static_cast<uint64_t>(config.seed),
                          .held_out = config.data.held_out}) {}
  std::unique_ptr<TokenSource> tokens;
  Batches batches;
};

// What all cells have in common. It is planned without sizes, with which homes
// may be a single rank: who shares a matrix and how matrices are exchanged is
// decided in each cell.
TrainJob common_job(TrainConfig config) {
  config.plan.teams = "off";
  config.plan.exchange = "rounds";
  return make_job(config, mesh_of(config));
}

Outcome run(const ZeroArguments& a, const Output& out) {
  check_arguments(a);
  if (!a.trace.empty()) check_late_file("--trace", a.trace, "");
  give_streams_connections(a.device);
  make_engine(a.device);  // throws if there is none
  const TrainConfig config = zero_config(a);
  const TrainJob job = common_job(config);
  RuleOptions rule_options = job.plan.rule_options;
  const bool trains = device_kind(a.device).trains_models;
  const PrecisionChoice precision =
      trains ? precision_of(config) : move_to_gpu(a, job.plan, rule_options);
  ZeroBenchRequest request =
      request_of(a, job, rule_options,
                 {.teams = parse_teams(config.plan.teams),
                  .exchange = parse_exchange(config.plan.exchange)},
                 out);
  std::optional<TrainingInput> training;
  if (trains) {
    require_memory(job, job.plan.mesh.world());
    request.batches = &training.emplace(config).batches;
  }
  std::unique_ptr<Trace> trace;
  if (!a.trace.empty()) trace = std::make_unique<Trace>();
  request.trace = trace.get();

  const ZeroReport report = report_of(a, config, precision, job, request);
  out.progress("");
  if (trace != nullptr) out.save_trace(a.trace, *trace);
  for (const std::string& warning : warnings_of(report))
    out.note("warning: " + warning);
  out.result(a.json ? zero_json(report) : zero_text(report, out.ink()));
  return report.disagreement().empty() ? Outcome::kDone : Outcome::kFailed;
}

}  // namespace

Verb add_bench_zero(CLI::App& bench) {
  auto a = std::make_shared<ZeroArguments>();
  const Verb verb = add_verb(
      bench, {.name = "zero",
              .description =
                  "train with every ZeRO size: time, overlap, traffic, memory",
              .options = joined(
                  {trained_options(*a), cut_options(*a), measured_options(*a)}),
              .footer = kBenchZeroExamples,
              .run = [a](const Output& out) { return run(*a, out); }});
  a->app = verb.app;
  return verb;
}

}  // namespace canzona::cli

#include "cli/plan_input.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "canzona/base/device_kind.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/shapes/architecture.h"
#include "cli/stated_cluster.h"

namespace canzona::cli {
namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;

constexpr int64_t kMaxValues = 100'000'000;

// True if the text says that it is a plan, however broken it is.
bool claims_to_be_plan(const std::string& text) {
  try {
    const Json json = parse_json(
        text,
        {.what = "plan", .max_bytes = kMaxPlanBytes, .max_values = kMaxValues});
    return json.is_object() && json.value("format", Json()) == "canzona.plan";
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace

PlanFile read_plan(const std::string& path) {
  const std::string text = read_file(path, kMaxPlanBytes, "plan");
  ReadPlan read;
  PlanFile file;
  try {
    read = plan_from_json(text, path);
  } catch (const UsageError& error) {
    if (!claims_to_be_plan(text)) throw;
    file.violations.emplace_back(error.what());
    return file;
  }
  if (!read.digest_matches)
    file.violations.push_back(
        cat("digest: the file has ", printable(read.plan.digest),
            ", but its contents have ", digest_of(read.plan)));
  for (std::string& violation : validate(read.plan))
    file.violations.push_back(std::move(violation));
  file.plan = std::move(read.plan);
  return file;
}

namespace {

constexpr int64_t kUsualTokens = 4096;
// Used if the model does not say how many experts a token visits.
constexpr int64_t kUsualExperts = 8;
constexpr int64_t kUsualSegment = 16 << 20;

bool knows_experts_per_token(const Model& model) {
  return model.num_experts == 0 || model.experts_per_token > 0;
}

// `allowed` has the dtypes and other words that the option takes.
DType read_dtype(const std::string& text, const char* option,
                 const std::vector<std::string>& allowed) {
  for (DType known : {DType::kBf16, DType::kFp32})
    if (text == to_string(known)) return known;
  const std::vector<std::string> first(allowed.begin(), allowed.end() - 1);
  throw UsageError(cat(option, " ", quoted(text), ": expected ",
                       join(first, ", "), " or ", allowed.back(),
                       did_you_mean(text, allowed)));
}

}  // namespace

std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option) {
  if (text == "all") return all_zero_sizes(homes);
  std::vector<ZeroSizes> sizes;
  const auto add = [&](const std::string& word) {
    const ZeroSizes one = parse_zero(word, homes, option, "all");
    check_zero(one, homes, option);
    if (std::ranges::find(sizes, one) == sizes.end()) sizes.push_back(one);
  };
  for (const std::string& part : split_text(text, ';')) {
    if (part.find('=') != std::string::npos)
      add(part);
    else
      for (const std::string& word : split_text(part, ',')) add(word);
  }
  return sizes;
}

namespace {

// Divides the tokens of an iteration into micro-batches.
void read_batch(const PlanArguments& a, const Mesh& mesh, Workload& work) {
  int64_t& tokens = work.compute.tokens;
  tokens = a.tokens.value_or(kUsualTokens);
  work.num_micro_batches = a.micro_batches.value_or(1);
  const bool is_set = a.micro_batches && a.tokens;
  if (a.global_batch && (is_set || tokens == 0))
    throw UsageError(cat("--global-batch ", *a.global_batch, ": --tokens ",
                         tokens, a.micro_batches ? " and --micro-batches" : "",
                         " already determine the batch; leave one out"));
  if (tokens == 0 || (a.micro_batches && !a.global_batch)) return;
  const int64_t batch = a.global_batch.value_or(kUsualGlobalBatch);
  if (batch < mesh.homes())
    throw UsageError(cat("--global-batch ", batch, ": expected at least ",
                         mesh.homes(),
                         ", a token for each data-parallel rank"));
  const auto divide_up = [](int64_t x, int64_t y) { return (x + y - 1) / y; };
  const int64_t of_rank = divide_up(batch, mesh.homes());
  if (!a.micro_batches) work.num_micro_batches = divide_up(of_rank, tokens);
  tokens = divide_up(of_rank, work.num_micro_batches);
}

}  // namespace

Workload read_workload(const PlanArguments& a, const Model& model,
                       const Mesh& mesh) {
  Workload work;
  read_batch(a, mesh, work);
  ComputeLoad& load = work.compute;
  load.length = a.length.value_or(std::min(load.tokens, kUsualTokens));
  load.width = attention_width(model);
  state_rates(a, work);
  load.experts_per_token =
      knows_experts_per_token(model)
          ? model.experts_per_token
          : std::min<int64_t>(kUsualExperts, model.num_experts);
  load.recompute = a.recompute;
  work.hidden = hidden_width(model);
  work.bytes_per_activation = 2;
  // Threads send small pieces; a cluster's library has a latency per message.
  work.segment_bytes = kUsualSegment;
  work.overlap = parse_overlap(a.planner.or_usual("overlap"));
  return work;
}

MemoryTerms read_memory_terms(const PlanArguments& a, const Model& model,
                              const Mesh& mesh, const PlanOptions& options) {
  const Workload work = read_workload(a, model, mesh);
  const bool counted = a.activations != "none";
  ActivationLoad load{.tokens = counted ? work.compute.tokens : 0,
                      .num_micro_batches = work.num_micro_batches,
                      .experts_per_token = work.compute.experts_per_token,
                      .recompute = a.recompute,
                      .experts_assumed = !knows_experts_per_token(model)};
  if (counted && !a.activations.empty())
    load.dtype =
        read_dtype(a.activations, "--activations", {"bf16", "fp32", "none"});
  const DType gradients =
      a.gradients.empty()
          ? DType::kFp32
          : read_dtype(a.gradients, "--gradients", {"bf16", "fp32"});
  return memory_terms(model, mesh, load, gradients, options);
}

namespace {

constexpr int64_t kMaxCostTableBytes = 64 << 20;
constexpr int64_t kMostClusterFileBytes = 1 << 20;

// Runs `read` and adds the option to an error that does not name it.
template <class Read>
auto from_option(const char* option, const std::string& value,
                 const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    const std::string message = error.what();
    // The library knows an option by its name alone.
    if (message.find(option) != std::string::npos ||
        message.starts_with(std::string_view(option).substr(2)))
      throw;
    throw UsageError(cat(option, " ", quoted(value), ": ", message));
  }
}

void require(const std::string& value, const char* option,
             const char* example) {
  if (value.empty())
    throw UsageError(cat(option, " is required, for example ", example));
}

std::string one_of(const std::string& value, const char* option,
                   const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return value;
  throw UsageError(cat(option, " ", quoted(value), ": expected ",
                       join(known, ", "), did_you_mean(value, known)));
}

const RuleEntry& find_rule(const std::string& name) {
  std::vector<std::string> names;
  for (const RuleEntry& entry : rule_table()) names.push_back(entry.name);
  one_of(name, "--rule", names);
  return *std::find_if(rule_table().begin(), rule_table().end(),
                       [&](const RuleEntry& e) { return e.name == name; });
}

// Applies an option of the program that stands for an option of some rules.
void add_shorthand(RuleOptions& options, const RuleEntry& rule,
                   const char* flag, const char* name,
                   const std::string& value) {
  if (value.empty()) return;
  if (!has_option(rule, name))
    throw UsageError(cat(flag, " ", quoted(value), ": rule ", rule.name,
                         " has no such option; it belongs to ",
                         join(rules_with(name), " and ")));
  if (!options.try_emplace(name, value).second)
    throw UsageError(cat(flag, " and --rule-option ", name,
                         " set the same option; give only one"));
}

RuleOptions read_rule_options(const PlanArguments& a, const RuleEntry& rule) {
  RuleOptions options = parse_rule_options(a.rule_options);
  add_shorthand(options, rule, "--newton-schulz", "newton_schulz",
                a.newton_schulz);
  add_shorthand(options, rule, "--phases", "phases", a.phases);
  return a.device.empty() ? options : with_device(rule.name, options, a.device);
}

// Says what `precision=auto` means in a plan for CPUs, none of which is
// queried.
std::string note_precision(const RuleOptions& given,
                           const RuleOptions& in_force) {
  const auto asked = given.find("precision");
  const auto device = in_force.find("device");
  const bool left = asked == given.end() || asked->second == "auto";
  if (!left || !in_force.contains("precision") || device == in_force.end() ||
      device_kind(device->second).has_own_memory)
    return "";
  return cat("precision=auto: ", in_force.at("precision"),
             ", as on CPUs with AMX or AVX-512 BF16, without checking this "
             "machine; precision=fp32 plans for other CPUs");
}

void read_planner_options(const PlanArguments& a, PlanOptions& o) {
  for (const PlannerOption& option : planner_options()) {
    const std::string& text = a.planner[option.name];
    if (option.set == nullptr || text.empty()) continue;
    const std::string flag = option.flag();
    from_option(flag.c_str(), text, [&] {
      option.set(o, text, flag);
      return 0;
    });
  }
}

// Returns the rule with all its options; an error names the option that caused
// it.
std::unique_ptr<RuleFacts> read_rule(const PlanArguments& a,
                                     std::string& note) {
  const RuleEntry& rule = find_rule(a.rule);
  RuleOptions options = read_rule_options(a, rule);
  try {
    if (a.settle) a.settle(rule.name, options);
    auto facts = make_rule_facts(rule.name, options);
    note = note_precision(options, facts->options());
    return facts;
  } catch (const UsageError& error) {
    const std::string message = error.what();
    const auto is_about = [&](const std::string& value, const char* name) {
      return !value.empty() && message.find(name) != std::string::npos;
    };
    const char* option = is_about(a.newton_schulz, "newton_schulz")
                             ? "--newton-schulz"
                         : is_about(a.phases, "phases") ? "--phases"
                                                        : "--rule-option";
    throw UsageError(cat(option, ": ", message));
  }
}

void route_by_patterns(Model& model,
                       const std::vector<RouteOverride>& patterns) {
  try {
    route(model, patterns);
  } catch (const UsageError& error) {
    const std::string message = error.what();
    for (const RouteOverride& pattern : patterns) {
      if (message.find(quoted(pattern.pattern)) == std::string::npos) continue;
      throw UsageError(cat(pattern.matrix_rule ? "--matrix-rule" : "--adamw",
                           ": ", message));
    }
    throw;
  }
}

Model read_routed_model(const PlanArguments& a) {
  ReadOptions options{.fused = a.fused};
  if (a.layers) options.layers = *a.layers;
  if (!a.scale.empty())
    options.divisor =
        from_option("--scale", a.scale, [&] { return parse_scale(a.scale); });
  Model model = from_option("--model", a.model,
                            [&] { return read_model(a.model, options); });
  route_by_patterns(model, a.overrides());
  return model;
}

// The cap applies to what the terms count, which the plan alone does not know.
std::vector<std::string> violations_but_cap(Plan& plan) {
  const int64_t cap = std::exchange(plan.options.memory_cap_bytes, 0);
  std::vector<std::string> violations = validate(plan);
  plan.options.memory_cap_bytes = cap;
  return violations;
}

}  // namespace

RuleOptions parse_rule_options(const std::vector<std::string>& given) {
  RuleOptions options;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(cat("--rule-option ", quoted(text),
                           ": expected NAME=VALUE, such as steps=5"));
    const std::string name = text.substr(0, equals);
    if (!options.try_emplace(name, text.substr(equals + 1)).second)
      throw UsageError(
          cat("--rule-option ", quoted(text), ": ", name, " is given twice"));
  }
  return options;
}

CostTable read_cost_table(const std::string& path, const char* option) {
  return from_option(option, path, [&] {
    return CostTable::parse(read_file(path, kMaxCostTableBytes, "cost table"),
                            path);
  });
}

Cluster read_cluster_file(const std::string& path) {
  return Cluster::parse(read_file(path, kMostClusterFileBytes, "cluster"),
                        path);
}

std::optional<CostTable> read_cost_table_of(const Cluster& cluster,
                                            const std::string& file) {
  const std::string& name = cluster.card.cost_table;
  if (name.empty()) return std::nullopt;
  try {
    return read_cost_table(
        (std::filesystem::path(file).parent_path() / name).string(),
        "cost table");
  } catch (const UsageError& error) {
    throw UsageError(cat("--cluster ", quoted(file, 300), ": card.cost_table ",
                         quoted(name, 300),
                         " (relative to this file): ", error.what()));
  }
}

void settle_device(const CostTable* table, PlanArguments& a) {
  for (const std::string& option : a.rule_options)
    if (option.starts_with("device=")) return;
  a.device = table == nullptr ? "cuda" : table->kind();
}

std::string known_strategy(const std::string& name, const char* option,
                           const char* also) {
  std::vector<std::string> names = planner_option("strategy").words;
  if (also != nullptr) names.emplace_back(also);
  return one_of(name, option, names);
}

std::vector<std::string> known_strategies(const std::string& text,
                                          const char* option) {
  if (text.empty() || text == "all") return planner_option("strategy").words;
  std::vector<std::string> names;
  for (const std::string& name : split_text(text, ','))
    names.push_back(known_strategy(name, option));
  return names;
}

Mesh requested_mesh(const PlanArguments& arguments) {
  require(arguments.model, "--model", "--model qwen3-32b");
  require(arguments.mesh, "--mesh", "--mesh dp=32,tp=8");
  return from_option("--mesh", arguments.mesh,
                     [&] { return parse_mesh(arguments.mesh); });
}

namespace {

// The search for owners may look at every pair of a matrix and a rank. This
// many take about half a minute of one core.
constexpr int64_t kMostPairs = int64_t{1} << 32;

void check_size(const Model& model, int64_t ranks, const std::string& where) {
  const int64_t matrices = std::ranges::count_if(
      model.tensors, [](const Tensor& tensor) { return tensor.matrix_rule; });
  if (matrices <= kMostPairs / ranks) return;
  throw UsageError(cat(
      where, ": model ", quoted(model.name), " has ", matrices,
      " matrices, and planning looks at every matrix and "
      "rank: of so many, expected at most ",
      kMostPairs / matrices, " ranks, got ", ranks,
      "; try a part of the model, such as --layers ",
      std::max<int64_t>(1, kMostPairs / ranks * model.num_layers / matrices)));
}

}  // namespace

PlanInput read_input_of_any_mesh(const PlanArguments& arguments, int64_t ranks,
                                 const std::string& where) {
  PlanInput input;
  // Checks cheap arguments first; a large file is read last.
  input.rule = read_rule(arguments, input.note);
  read_planner_options(arguments, input.options);
  state_cluster(arguments, static_cast<int32_t>(ranks), where, input.options);
  input.flops_per_second = stated_rule_rate(arguments);
  check_options(input.options);
  if (!arguments.cost.empty())
    input.cost_table = read_cost_table(arguments.cost);
  input.model = read_routed_model(arguments);
  check_size(input.model, ranks, where);
  return input;
}

PlanInput read_plan_input(const PlanArguments& arguments) {
  const Mesh mesh = requested_mesh(arguments);
  PlanInput input = read_input_of_any_mesh(arguments, mesh.world(),
                                           cat("--mesh ", arguments.mesh));
  input.mesh = mesh;
  from_option("--mesh", arguments.mesh, [&] {
    check_mesh(input.mesh, input.model);
    return 0;
  });
  return input;
}

std::string memory_cures(const MemoryTerms& terms, const char* zero) {
  std::vector<std::string> cures = {
      cat("--zero ", zero, ", which shards gradients and parameters")};
  if (terms.activations > 0 && !terms.load.recompute)
    cures.emplace_back("--recompute");
  return cat("try ", join(cures, ", "), ", or a larger tp in --mesh");
}

void require_cap(const MemoryTerms& terms, const std::vector<RankCost>& ranks,
                 const std::string& strategy) {
  std::vector<std::string> violations;
  check_memory_cap(terms.cap_bytes, ranks, terms.activations, violations);
  if (violations.empty()) return;
  throw CapExceeded(
      cat("--memory-cap ", human_bytes(terms.cap_bytes), ": the plan of ",
          "strategy ", strategy, " needs more\n", join(violations, "\n"), "\n",
          memory_cures(terms, "auto")),
      violations,
      fullest_memory(ranks).total().value() + terms.activations -
          terms.cap_bytes);
}

ReportPlan plan_once(const PlanInput& input, const std::string& strategy,
                     Model* may_take) {
  PlanRequest request = input.request();
  request.may_take = may_take;
  request.options.strategy = strategy;
  ReportPlan shown;
  const auto start = std::chrono::steady_clock::now();
  const MemoryTerms terms = input.terms.value_or(
      MemoryTerms{.cap_bytes = request.options.memory_cap_bytes});
  shown.plan = plan_in_terms(request, terms);
  std::vector<std::string> violations = violations_but_cap(shown.plan);
  shown.plan_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  shown.ranks = predict_in_terms(shown.plan, terms);
  if (!violations.empty())
    throw ViolationsFound(
        cat("the plan of strategy ", strategy, " fails validation"),
        std::move(violations));
  require_cap(terms, shown.ranks, strategy);
  shown.balance = measure_balance(shown.plan);
  shown.terms = input.terms;
  if (input.work)
    shown.iteration = predicted_iteration(shown.plan, *input.work);
  return shown;
}

}  // namespace canzona::cli

#include "canzona/measure/train_plan.h"

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/shapes/read_model.h"

namespace canzona::measure {
namespace {

PlanOptions plan_options_of(const TrainConfig& config, const Mesh& mesh) {
  PlanOptions options = planner_options_of(config, mesh);
  // A device has fp32 masters beside them.
  if (!device_kind(config.device).has_own_memory)
    options.parameters = DType::kFp32;
  options.splits.qkv = true;
  options.splits.gate_up = true;
  options.ranks_per_node = ranks_per_node_of(config);
  put_link(link_of(config), options);
  return options;
}

// Activations depend neither on how the plan is cut nor on how matrices are
// shared.
int64_t activations_of(const TrainSettings& settings, PlanRequest request) {
  request.options.zero = {};
  request.options.teams = kTeamsOff;
  request.options.memory_cap_bytes = 0;
  return training_memory(settings, make_plan(request));
}

// Returns the memory that the cap leaves for the plan.
int64_t cap_on_plan(int64_t cap, int64_t activations) {
  if (cap == 0 || activations < cap) return cap > 0 ? cap - activations : 0;
  throw UsageError(cat("memory-cap ", human_bytes(cap),
                       ": activations alone take ", human_bytes(activations),
                       "; try model.recompute=layer or a smaller batch.micro"));
}

void require_fits(const Plan& plan, int64_t whole_cap) {
  const int64_t cap = plan.options.memory_cap_bytes;
  const int64_t lacks = plan.summary.memory_per_rank_max.value() - cap;
  if (cap == 0 || lacks <= 0) return;
  throw UsageError(cat("memory-cap ", human_bytes(whole_cap), ": with ",
                       to_string(plan.options.zero.sizes), " a rank needs ",
                       human_bytes(whole_cap + lacks), ", ", human_bytes(lacks),
                       " too much; larger sizes need less, and `canzona "
                       "compare` with zero=all shows the memory of each"));
}

Workload workload_at(const TrainSettings& settings, const Mesh& mesh,
                     const MachineLimits& limits) {
  const DecoderConfig& decoder = settings.decoder;
  Workload work;
  work.compute.tokens = decoder.tokens();
  work.compute.length = decoder.length;
  work.compute.width =
      decoder.architecture.heads * decoder.architecture.head_dim;
  work.compute.flops_per_second = limits.flops_per_second;
  work.compute.experts_per_token = decoder.experts_per_token;
  work.compute.recompute = decoder.recompute == Recompute::kLayer;
  work.num_micro_batches = settings.micro_batches(mesh);
  work.hidden = decoder.architecture.hidden;
  work.overlap = settings.runtime.overlap;
  work.copy_bytes_per_second = limits.copy_bytes_per_second;
  work.meetings = {limits.meetings.idle, limits.meetings.beside_compute};
  return work;
}

// Links that are not modelled count as fast as memory.
ZeroRanking fastest_sizes(PlanRequest request, const TrainSettings& settings,
                          const SearchedSizes& searched,
                          const MachineLimits& limits,
                          const MemoryTerms& terms) {
  if (request.options.links.nominal)
    request.options.links = {limits.copy_bytes_per_second,
                             limits.copy_bytes_per_second,
                             /*latency_seconds=*/0, /*nominal=*/false};
  const CostBasis cost{"this machine", 1 / limits.flops_per_second,
                       limits.copy_bytes_per_second};
  ZeroRanking all =
      search_sizes(request, workload_at(settings, request.mesh, limits),
                   searched, &cost, &terms);
  all.terms.reset();  // reports describe the links as configured
  return all;
}

}  // namespace

namespace {

int32_t asked_ranks_per_node(const TrainConfig& config) {
  PlanOptions options;
  const PlannerOption& option = planner_option("ranks-per-node");
  option.set(options, config.planner[option.name], option.key);
  return options.ranks_per_node;
}

// An error has the key and its origin in addition.
LinkModel read_link_model(const TrainConfig& config, int ranks_per_node) {
  try {
    return parse_link_model(config.link_model, ranks_per_node);
  } catch (const UsageError& error) {
    throw UsageError(cat("links.model (", config.origin("links.model"),
                         "): ", error.what()));
  }
}

}  // namespace

Link link_of(const TrainConfig& config) {
  if (config.link_model.empty()) return {};
  const int asked = asked_ranks_per_node(config);
  const Link link = read_link_model(config, asked);
  // A value that came with a checkpoint or a preset gives way.
  if (config.origin("links.ranks_per_node").starts_with("--") &&
      link->ranks_per_node != asked)
    throw UsageError(cat("ranks-per-node ", asked, ": links.model (",
                         config.origin("links.model"), ") has ranks_per_node=",
                         link->ranks_per_node, "; give only one"));
  return link;
}

int32_t ranks_per_node_of(const TrainConfig& config) {
  const Link link = link_of(config);
  return link ? link->ranks_per_node : asked_ranks_per_node(config);
}

TrainPlan plan_training(const TrainConfig& config,
                        const TrainSettings& settings, const Mesh& mesh,
                        const std::optional<MachineLimits>& limits) {
  Model model = decoder_shapes(settings.decoder, model_name(config));
  route(model, {});
  if (!config.freeze.empty()) freeze(model, split_text(config.freeze, ','));
  check_mesh(mesh, model);
  const auto rule = make_rule_facts(
      config.rule.name,
      with_device(config.rule.name, rule_options_of(config), config.device));
  PlanRequest request{model, mesh, *rule, plan_options_of(config, mesh)};
  const int64_t cap = request.options.memory_cap_bytes;
  const SearchedSizes searched{.dense = chooses_zero(config),
                               .experts = chooses_experts(config)};
  const int64_t activations =
      cap > 0 || searched ? activations_of(settings, request) : 0;
  const int64_t left = cap_on_plan(cap, activations);
  TrainPlan made;
  if (searched) {
    CANZONA_CHECK(limits.has_value());
    made.ranking =
        fastest_sizes(request, settings, searched, *limits,
                      {.activations = activations, .cap_bytes = cap});
    take_best(*made.ranking, request.options);
  }
  request.options.memory_cap_bytes = left;
  made.plan = make_plan(request);
  require_fits(made.plan, cap);
  return made;
}

}  // namespace canzona::measure

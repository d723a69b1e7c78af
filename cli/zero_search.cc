#include "cli/zero_search.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost.h"
#include "canzona/plan/parts.h"
#include "canzona/report/numbers.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/zero_bytes.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/search.h"
#include "canzona/sim/search_reason.h"

namespace canzona::cli {
namespace {

constexpr int64_t kUsualTokens = 4096;
// Experts per token where the model does not say.
constexpr int64_t kUsualExperts = 8;
constexpr int64_t kUsualSegment = 16 << 20;
constexpr int64_t kMost = int64_t{1} << 40;

int64_t number_or(const std::string& text, int64_t usual, const char* option,
                  int64_t least = 1) {
  return text.empty() ? usual : parse_integer(text, least, kMost, option);
}

bool knows_experts_per_token(const Model& model) {
  return model.num_experts == 0 || model.experts_per_token > 0;
}

// `allowed`: the dtypes, and further words that the option takes.
ParameterDtype read_dtype(const std::string& text, const char* option,
                          const std::vector<std::string>& allowed) {
  for (ParameterDtype known : {ParameterDtype::kBf16, ParameterDtype::kFp32})
    if (text == to_string(known)) return known;
  const std::vector<std::string> first(allowed.begin(), allowed.end() - 1);
  throw UsageError(cat(option, " ", quoted(text), ": expected ",
                       join(first, ", "), " or ", allowed.back(),
                       did_you_mean(text, allowed)));
}

std::string work_text(const Workload& work) {
  return cat(
      work.num_micro_batches,
      work.num_micro_batches == 1 ? " micro-batch of " : " micro-batches of ",
      work.compute.tokens, " tokens on a data-parallel rank, ",
      to_string(work.overlap), work.compute.recompute ? ", recomputed" : "");
}

std::string rates_text(const Workload& work, const PlanOptions& options) {
  return cat(flops_text(work.compute.flops_per_second),
             "/s in forward and backward; ", links_text(options));
}

// Without the name of the choice that it is set against: the table shows it.
std::string brief(const RankedZero& ranked, const ZeroSearch& search) {
  if (ranked.verdict == ZeroVerdict::kOverCap)
    return cat(
        human_bytes(ranked.weight.memory_bytes - search.memory_cap_bytes),
        " over the cap");
  std::string text = ranked.reason;
  const std::string best = choice_name(search.ranking.front().choice, search);
  for (const std::string& word : {cat(" than ", best), cat(" as ", best)})
    if (const size_t at = text.find(word); at != std::string::npos)
      text.erase(at, word.size());
  return text;
}

// Each choice is planned once, however often it is asked for.
class Weighing {
 public:
  Weighing(const PlanRequest& request, const Workload& work,
           const CostBasis* cost, const MemoryTerms* terms,
           bool several_strategies)
      : request_(request),
        work_(work),
        cost_(cost),
        terms_(terms == nullptr ? MemoryTerms{} : *terms),
        several_(several_strategies) {}

  ZeroWeight operator()(const ZeroChoice& choice) {
    for (const Known& known : known_)
      if (known.choice == choice) return known.weight;
    Known& known = known_.emplace_back();
    known.choice = choice;
    known.row.sizes = choice.sizes;
    if (several_) known.row.strategy = choice.strategy;
    try {
      known.weight = weigh(choice, known.row);
    } catch (const UsageError& error) {
      known.row.experts = choice.experts;
      known.weight.refusal = error.what();
    }
    return known.weight;
  }

  ComparedZero row(const ZeroChoice& choice) const {
    return std::ranges::find(known_, choice, &Known::choice)->row;
  }

 private:
  struct Known {
    ZeroChoice choice;
    ZeroWeight weight;
    ComparedZero row;
  };

  ZeroWeight weigh(const ZeroChoice& choice, ComparedZero& row) {
    PlanRequest request = request_;
    request.options.strategy = choice.strategy;
    request.options.zero.sizes = choice.sizes;
    if (choice.experts.z1 > 0) request.options.zero.experts = choice.experts;
    Plan plan = plan_in_terms(request, terms_);
    if (cost_ != nullptr) plan = with_basis(std::move(plan));
    const IterationPrediction predicted = predict_iteration(plan, work_);
    row.planned = true;
    row.experts = plan.options.zero.experts;
    row.memory = fullest_memory(predict_in_terms(plan, terms_));
    row.fast_bytes = predicted.fast_bytes;
    row.slow_bytes = predicted.slow_bytes;
    row.seconds = predicted.time.seconds;
    row.step_seconds = predicted.time.step_seconds;
    row.replicas = plan.parts.front().num_replicas();
    row.z2_crosses_nodes = crosses_nodes(plan, &ZeroSizes::z2);
    row.z3_crosses_nodes = crosses_nodes(plan, &ZeroSizes::z3);
    return {.memory_bytes = row.memory.total().value() + terms_.activations,
            .slow_bytes = row.slow_bytes,
            .fast_bytes = row.fast_bytes,
            .seconds = row.seconds,
            .step_seconds = row.step_seconds};
  }

  Plan with_basis(Plan plan) const {
    plan.cost_basis = *cost_;
    for (PlanPart& part : plan.parts) part.cost_basis = *cost_;
    return plan;
  }

  const PlanRequest& request_;
  const Workload& work_;
  const CostBasis* cost_;
  MemoryTerms terms_;
  bool several_;  // strategies: rows say which
  std::vector<Known> known_;
};

ZeroComparison described(const PlanRequest& request, const Workload& work,
                         const MemoryTerms* terms,
                         const std::vector<ZeroChoice>& choices) {
  const PlanOptions& options = request.options;
  ZeroComparison all;
  all.model = request.model.name;
  all.mesh = request.mesh;
  all.rule = request.rule.name();
  std::vector<std::string> strategies;
  for (const ZeroChoice& choice : choices)
    if (std::ranges::find(strategies, choice.strategy) == strategies.end())
      strategies.push_back(choice.strategy);
  all.strategy = join(strategies, ", ");
  all.parameters = to_string(options.parameters);
  all.work = work_text(work);
  all.rates = rates_text(work, options);
  all.ranks_per_node = options.ranks_per_node;
  all.memory_cap_bytes = options.memory_cap_bytes;
  if (terms != nullptr) {
    all.terms = *terms;
    all.beside_bytes = terms->activations;
  }
  return all;
}

}  // namespace

std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option) {
  if (text == "all") return all_zero_sizes(homes);
  std::vector<ZeroSizes> sizes;
  const auto add = [&](const std::string& word) {
    const ZeroSizes one = parse_zero(word, homes, option);
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

Workload read_workload(const PlanArguments& a, const Model& model) {
  constexpr double kTera = 1e12;
  Workload work;
  ComputeLoad& load = work.compute;
  load.tokens = number_or(a.tokens, kUsualTokens, "--tokens", /*least=*/0);
  load.length =
      number_or(a.length, std::min(load.tokens, kUsualTokens), "--length");
  load.width = attention_width(model);
  load.flops_per_second =
      a.tflops.empty() ? kNominalFlopsPerSecond
                       : kTera * parse_number(a.tflops, 1e-6, 1e9, "--tflops");
  load.experts_per_token =
      knows_experts_per_token(model)
          ? model.experts_per_token
          : std::min<int64_t>(kUsualExperts, model.num_experts);
  load.recompute = a.recompute;
  work.num_micro_batches = number_or(a.micro_batches, 1, "--micro-batches");
  work.hidden = hidden_width(model);
  work.bytes_per_activation = 2;
  // Threads send small pieces; a cluster's library has latency per message.
  work.segment_bytes = kUsualSegment;
  if (!a.overlap.empty()) work.overlap = parse_overlap(a.overlap);
  return work;
}

MemoryTerms read_memory_terms(const PlanArguments& a, const Model& model,
                              const Mesh& mesh, const PlanOptions& options) {
  const Workload work = read_workload(a, model);
  const bool counted = a.activations != "none";
  ActivationLoad load{.tokens = counted ? work.compute.tokens : 0,
                      .num_micro_batches = work.num_micro_batches,
                      .experts_per_token = work.compute.experts_per_token,
                      .recompute = a.recompute,
                      .experts_assumed = !knows_experts_per_token(model)};
  if (counted && !a.activations.empty())
    load.dtype =
        read_dtype(a.activations, "--activations", {"bf16", "fp32", "none"});
  const ParameterDtype gradients =
      a.gradients.empty()
          ? ParameterDtype::kFp32
          : read_dtype(a.gradients, "--gradients", {"bf16", "fp32"});
  return memory_terms(model, mesh, load, gradients, options);
}

namespace {

ZeroComparison weigh_choices(const PlanRequest& request, const Workload& work,
                             const MemoryTerms* terms,
                             const std::vector<ZeroChoice>& choices,
                             Weighing& weighing) {
  const ZeroSearch search =
      rank_choices(choices, request.options.memory_cap_bytes,
                   [&](const ZeroChoice& choice) { return weighing(choice); });
  ZeroComparison all = described(request, work, terms, choices);
  all.verdict = search.summary();
  for (const RankedZero& ranked : search.ranking) {
    ComparedZero row = weighing.row(ranked.choice);
    row.fits = ranked.verdict == ZeroVerdict::kFits;
    row.reason = brief(ranked, search);
    all.rows.push_back(std::move(row));
  }
  return all;
}

std::vector<ZeroChoice> choices_of(const PlanRequest& request,
                                   const ZeroChoices& all) {
  std::vector<std::string> strategies = all.strategies;
  if (strategies.empty()) strategies = {request.options.strategy};
  std::vector<ZeroSizes> experts = all.experts;
  if (experts.empty()) experts = {ZeroSizes{}};
  std::vector<ZeroChoice> choices;
  for (const std::string& strategy : strategies)
    for (const ZeroSizes& dense : all.sizes)
      for (const ZeroSizes& own : experts)
        choices.push_back({dense, strategy, own});
  return choices;
}

}  // namespace

ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const ZeroChoices& choices, const CostBasis* cost,
                           const MemoryTerms* terms) {
  Weighing weighing(request, work, cost, terms, choices.strategies.size() > 1);
  return weigh_choices(request, work, terms, choices_of(request, choices),
                       weighing);
}

ZeroComparison search_sizes(const PlanRequest& request, const Workload& work,
                            const SearchedSizes& what, const CostBasis* cost,
                            const MemoryTerms* terms) {
  if (what.experts && !has_experts(request.model))
    throw UsageError(
        cat("--zero-experts auto: ", request.model.name, " has no experts"));
  Weighing weighing(request, work, cost, terms, what.strategies.size() > 1);
  std::vector<ZeroChoice> choices;
  ZeroChoices second{
      {with_states(request.options.zero.sizes, request.mesh.homes())},
      all_zero_sizes(request.mesh.expert_homes()),
      what.strategies};
  if (what.dense) {
    choices = choices_of(
        request, {all_zero_sizes(request.mesh.homes()), {}, what.strategies});
    const ComparedZero best =
        weigh_choices(request, work, terms, choices, weighing).rows.front();
    second.sizes = {best.sizes};
    if (!best.strategy.empty()) second.strategies = {best.strategy};
  }
  if (what.experts)
    for (const ZeroChoice& choice : choices_of(request, second))
      choices.push_back(choice);
  return weigh_choices(request, work, terms, choices, weighing);
}

void take_best(const ZeroComparison& all, PlanOptions& options) {
  if (!all.has_fit()) throw UsageError(cat("sizes of ZeRO: ", all.verdict));
  const ComparedZero& best = all.rows.front();
  options.zero.sizes = best.sizes;
  options.zero.experts = best.experts;
  if (!best.strategy.empty()) options.strategy = best.strategy;
}

}  // namespace canzona::cli

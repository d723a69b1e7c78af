#include "cli/zero_search.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/zero_bytes.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/search.h"

namespace canzona::cli {
namespace {

constexpr int64_t kUsualTokens = 4096;
constexpr int64_t kUsualExperts = 8;
constexpr int64_t kMost = int64_t{1} << 40;

int64_t number_or(const std::string& text, int64_t usual, const char* option) {
  return text.empty() ? usual : parse_integer(text, 1, kMost, option);
}

std::string work_text(const Workload& work) {
  const auto many = [](int64_t n, const char* what) {
    return cat(n, " ", what, n == 1 ? "" : "s");
  };
  return cat(many(work.num_micro_batches, "micro-batch"),
             work.num_micro_batches == 1 ? " of " : "es of ",
             many(work.compute.tokens, "token"), " on a data-parallel rank, ",
             to_string(work.overlap));
}

std::string rates_text(const Workload& work, const PlanOptions& options) {
  constexpr double kTera = 1e12;
  char flops[32];
  std::snprintf(flops, sizeof flops, "%.3g",
                work.compute.flops_per_second / kTera);
  return cat(flops, " TFLOP/s in forward and backward; ", links_text(options));
}

const RankMemory& fullest(const std::vector<RankCost>& ranks) {
  return std::ranges::max_element(
             ranks, {},
             [](const RankCost& rank) { return rank.memory.total().value(); })
      ->memory;
}

// Without the name of the choice that it is set against: the table shows it.
std::string brief(const RankedZero& ranked, const ZeroSearch& search) {
  if (ranked.verdict == ZeroVerdict::kOverCap)
    return cat(
        human_bytes(ranked.weight.memory_bytes - search.memory_cap_bytes),
        " over the cap");
  std::string text = ranked.reason;
  const std::string best = to_string(search.ranking.front().choice.sizes);
  for (const std::string& word : {cat(" than ", best), cat(" as ", best)})
    if (const size_t at = text.find(word); at != std::string::npos)
      text.erase(at, word.size());
  return text;
}

class Weighing {
 public:
  Weighing(const PlanRequest& request, const Workload& work,
           const CostBasis* cost)
      : request_(request), work_(work), cost_(cost) {}

  ZeroWeight operator()(const ZeroChoice& choice) {
    rows_.push_back({.sizes = choice.sizes});
    try {
      return weigh(choice, rows_.back());
    } catch (const UsageError& error) {
      ZeroWeight refused;
      refused.refusal = error.what();
      return refused;
    }
  }

  ComparedZero take(const ZeroSizes& sizes) const {
    return *std::ranges::find(rows_, sizes, &ComparedZero::sizes);
  }

 private:
  ZeroWeight weigh(const ZeroChoice& choice, ComparedZero& row) {
    PlanRequest request = request_;
    request.options.zero.sizes = choice.sizes;
    Plan plan = make_plan(request);
    if (cost_ != nullptr) plan.cost_basis = *cost_;
    const IterationPrediction predicted = predict_iteration(plan, work_);
    row.planned = true;
    row.memory = fullest(predict(plan));
    row.fast_bytes = predicted.fast_bytes;
    row.slow_bytes = predicted.slow_bytes;
    row.seconds = predicted.time.seconds;
    row.step_seconds = predicted.time.step_seconds;
    row.replicas = plan.num_replicas();
    row.z2_crosses_nodes = crosses_nodes(plan, choice.sizes.z2);
    row.z3_crosses_nodes = crosses_nodes(plan, choice.sizes.z3);
    return {.memory_bytes = predicted.memory_bytes,
            .slow_bytes = row.slow_bytes,
            .fast_bytes = row.fast_bytes,
            .seconds = row.seconds,
            .step_seconds = row.step_seconds};
  }

  const PlanRequest& request_;
  const Workload& work_;
  const CostBasis* cost_;
  std::vector<ComparedZero> rows_;
};

ZeroComparison described(const PlanRequest& request, const Workload& work) {
  const PlanOptions& options = request.options;
  ZeroComparison all;
  all.model = request.model.name;
  all.mesh = request.mesh;
  all.rule = request.rule.name();
  all.strategy = options.strategy;
  all.parameters = to_string(options.parameters);
  all.work = work_text(work);
  all.rates = rates_text(work, options);
  all.ranks_per_node = options.ranks_per_node;
  all.memory_cap_bytes = options.memory_cap_bytes;
  return all;
}

}  // namespace

std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes) {
  if (text == "all") return all_zero_sizes(homes);
  std::vector<ZeroSizes> sizes;
  const auto add = [&](const std::string& word) {
    const ZeroSizes one = parse_zero(word, homes);
    check_zero(one, homes);
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

int64_t hidden_width(const Model& model) {
  for (const Tensor& tensor : model.tensors)
    if (tensor.role == Role::kEmbedding) return tensor.cols();
  return 0;
}

int64_t attention_width(const Model& model) {
  for (const Tensor& tensor : model.tensors) {
    for (const Part& part : tensor.parts)
      if (part.name == "q") return part.rows.rows();
    if (tensor.name.find("q_proj") != std::string::npos &&
        tensor.shape.size() > 1)
      return tensor.rows();
  }
  return hidden_width(model);
}

Workload read_workload(const PlanArguments& a, const Model& model) {
  constexpr double kTera = 1e12;
  Workload work;
  ComputeLoad& load = work.compute;
  load.tokens = number_or(a.tokens, kUsualTokens, "--tokens");
  load.length =
      number_or(a.length, std::min(load.tokens, kUsualTokens), "--length");
  load.width = attention_width(model);
  load.flops_per_second =
      a.tflops.empty() ? kNominalFlopsPerSecond
                       : kTera * parse_number(a.tflops, 1e-6, 1e9, "--tflops");
  load.experts_per_token =
      std::min<int64_t>(kUsualExperts, std::max(model.num_experts, 0));
  work.num_micro_batches = number_or(a.micro_batches, 1, "--micro-batches");
  work.hidden = hidden_width(model);
  work.bytes_per_activation = 2;
  if (!a.overlap.empty()) work.overlap = parse_overlap(a.overlap);
  return work;
}

ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const std::vector<ZeroSizes>& sizes,
                           const CostBasis* cost) {
  std::vector<ZeroChoice> choices;
  for (const ZeroSizes& one : sizes)
    choices.push_back({one, request.options.strategy});
  Weighing weighing(request, work, cost);
  const ZeroSearch search =
      rank_choices(choices, request.options.memory_cap_bytes,
                   [&](const ZeroChoice& choice) { return weighing(choice); });
  ZeroComparison all = described(request, work);
  all.verdict = search.summary();
  for (const RankedZero& ranked : search.ranking) {
    ComparedZero row = weighing.take(ranked.choice.sizes);
    row.fits = ranked.verdict == ZeroVerdict::kFits;
    row.reason = brief(ranked, search);
    all.rows.push_back(std::move(row));
  }
  return all;
}

ZeroSizes chosen_sizes(const ZeroComparison& all) {
  if (!all.has_fit()) throw UsageError(cat("--zero auto: ", all.verdict));
  return all.rows.front().sizes;
}

}  // namespace canzona::cli

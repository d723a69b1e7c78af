#include "canzona/sim/zero_search.h"

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/sim/mesh_bounds.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/prediction_inputs.h"

namespace canzona {

PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank) {
  PurposeBytes out;
  const auto of_cost = [&](Collective collective) {
    return cost.wire[static_cast<size_t>(collective)];
  };
  if (!is_plain(plan.options.zero, plan.mesh.homes())) {
    const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
    const int32_t stage = coordinates_of(plan.mesh, rank).stage;
    for (const ModuleUse& use : uses_of(usual_calls(plan, stage, 1))) {
      const PurposeBytes& module = modules[index(use.module)];
      of(out, Purpose::kGatherModule) += of(module, Purpose::kGatherModule);
      if (!use.completes()) continue;
      for (const Purpose p : {Purpose::kScatterModule, Purpose::kSumReplicas})
        of(out, p) += of(module, p);
    }
  }
  // These include the sums over replicas, which are counted separately.
  of(out, Purpose::kSum) =
      of_cost(Collective::kReduceScatter) + of_cost(Collective::kAllReduce);
  of(out, Purpose::kSum).add(of(out, Purpose::kSumReplicas), -1);
  of(out, Purpose::kGatherMatrices) = of_cost(Collective::kGather);
  of(out, Purpose::kScatterMatrices) = of_cost(Collective::kScatter);
  of(out, Purpose::kPublish) =
      of_cost(Collective::kAllGather) + of_cost(Collective::kBroadcast);
  return out;
}

WireBytes ZeroOperation::of(const PurposeBytes& bytes) const {
  WireBytes sum;
  for (const Purpose purpose : purposes) sum += canzona::of(bytes, purpose);
  return sum;
}

const std::vector<ZeroOperation>& zero_operations() {
  static const std::vector<ZeroOperation> operations = {
      {"gather parameters", "gather", "micro-batch", {Purpose::kGatherModule}},
      {"scatter gradients",
       "scatter",
       "micro-batch",
       {Purpose::kScatterModule}},
      {"gradients to homes", "reduce", "step", {Purpose::kSum}},
      {"sum over replicas", "replicas", "step", {Purpose::kSumReplicas}},
      {"matrices to owners, back",
       "exchange",
       "step",
       {Purpose::kGatherMatrices, Purpose::kScatterMatrices}},
      {"new parameters", "publish", "step", {Purpose::kPublish}},
  };
  return operations;
}

bool crosses_nodes(const PlanPart& part, int32_t z) {
  const Mesh& mesh = part.mesh;
  for (int32_t stage = 0; stage < mesh.pp; ++stage)
    for (int32_t home = 0; home < mesh.homes(); home += z)
      for (int32_t t = 0; t < mesh.tp; ++t)
        if (part.node_of(mesh.rank(stage, home, t)) !=
            part.node_of(mesh.rank(stage, home + z - 1, t)))
          return true;
  return false;
}

bool crosses_nodes(const Plan& plan, int32_t ZeroSizes::* z) {
  return std::ranges::any_of(plan.parts, [&](const PlanPart& part) {
    return crosses_nodes(part, part.options.zero.sizes.*z);
  });
}

namespace {

// Prints two significant digits, never in powers of ten.
std::string short_number(double number) {
  const int digits = number >= 9.95 ? 0 : number >= 0.095 ? 1 : 3;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string slower_by(double seconds, double best) {
  const double ratio = best > 0 ? seconds / best : 1;
  if (ratio >= 2) return cat(short_number(ratio), "x as long as ");
  const double percent = std::max(0.001, 100 * (ratio - 1));
  return cat(short_number(percent), " % slower than ");
}

std::string more_bytes(int64_t bytes, int64_t best, const char* links) {
  if (best == 0)
    return cat(human_bytes(bytes), " over ", links, " links, the other none");
  return cat(
      short_number(static_cast<double>(bytes) / static_cast<double>(best)),
      "x its ", links, " bytes");
}

// Uneven buckets make sums and new parameters wait for one home, whatever the
// bytes of the others.
bool is_uneven(const ZeroWeight& weight, const ZeroWeight& best) {
  return weight.bucket_unevenness > kUnevenBucket &&
         weight.bucket_unevenness > 2 * best.bucket_unevenness;
}

bool is_clearly_more(double a, double b) { return a > 1.01 * b; }

// Names what the choice has more of; the most expensive comes first.
std::string cause(const ZeroWeight& weight, const ZeroWeight& best) {
  const double late = weight.seconds - best.seconds;
  const double step = weight.step_seconds - best.step_seconds;
  if (step > late / 2) {
    if (best.step_seconds == 0) return "its step takes longer";
    return cat("its step takes ",
               short_number(weight.step_seconds / best.step_seconds),
               "x the time");
  }
  if (is_uneven(weight, best))
    return cat("uneven buckets: one rank has ",
               short_number(weight.bucket_unevenness), "x its share");
  const auto more = [&](int64_t ZeroWeight::* bytes) {
    return is_clearly_more(static_cast<double>(weight.*bytes),
                           static_cast<double>(best.*bytes));
  };
  if (more(&ZeroWeight::slow_bytes))
    return more_bytes(weight.slow_bytes, best.slow_bytes, "slow");
  if (more(&ZeroWeight::fast_bytes))
    return more_bytes(weight.fast_bytes, best.fast_bytes, "fast");
  return "less communication is hidden";
}

std::string tie_reason(const ZeroWeight& weight, const ZeroWeight& best) {
  if (weight.slow_bytes != best.slow_bytes)
    return more_bytes(weight.slow_bytes, best.slow_bytes, "slow");
  if (weight.memory_bytes != best.memory_bytes)
    return cat(human_bytes(weight.memory_bytes - best.memory_bytes),
               " more memory");
  return "larger groups without a benefit";
}

std::string reason_to_take(const ZeroSearch& search) {
  const auto fits = std::ranges::count(search.ranking, ZeroVerdict::kFits,
                                       &RankedZero::verdict);
  if (fits == 1 && search.ranking.size() == 1) return "the only choice";
  if (fits == 1) return "the only one that fits";
  return cat("the fastest of ", fits);
}

}  // namespace

std::string in_words(const ZeroSizes& sizes) {
  const std::vector<std::pair<const char*, int32_t>> all = {
      {"states", sizes.z1}, {"gradients", sizes.z2}, {"parameters", sizes.z3}};
  std::vector<std::string> parts;
  for (size_t i = 0; i < all.size();) {
    std::vector<std::string> alike;
    const int32_t ranks = all[i].second;
    for (; i < all.size() && all[i].second == ranks; ++i)
      alike.emplace_back(all[i].first);
    const std::string last = alike.back();
    alike.pop_back();
    const std::string names =
        alike.empty() ? last : cat(join(alike, ", "), " and ", last);
    parts.push_back(ranks == 1 ? cat(names, " whole")
                               : cat(names, " over ", ranks));
  }
  return join(parts, ", ");
}

std::string choice_name(const ZeroChoice& choice, const ZeroSearch& search) {
  const bool alike =
      std::ranges::all_of(search.ranking, [&](const RankedZero& r) {
        return r.choice.strategy == choice.strategy;
      });
  std::string name = to_string(choice.sizes);
  if (choice.experts.z1 > 0)
    name += cat(" experts ", to_string(choice.experts));
  return alike ? name : cat(name, " ", choice.strategy);
}

std::string reason_for(const RankedZero& ranked, const ZeroSearch& search) {
  const ZeroWeight& weight = ranked.weight;
  if (ranked.verdict == ZeroVerdict::kRefused) return weight.refusal;
  if (ranked.verdict == ZeroVerdict::kOverCap)
    return cat("needs ", weight.is_dropped ? "at least " : "",
               human_bytes(weight.memory_bytes - search.memory_cap_bytes),
               " more than the cap of ", human_bytes(search.memory_cap_bytes));
  const RankedZero& best = search.ranking.front();
  if (ranked.choice == best.choice) return reason_to_take(search);
  const std::string name = choice_name(best.choice, search);
  if (weight.seconds <= best.weight.seconds * (1 + kEqualTimes) &&
      best.weight.seconds <= weight.seconds * (1 + kEqualTimes))
    return cat("as fast as ", name, ": ", tie_reason(weight, best.weight));
  return cat(slower_by(weight.seconds, best.weight.seconds), name, ": ",
             cause(weight, best.weight));
}

std::string brief_reason(const RankedZero& ranked, const ZeroSearch& search) {
  if (ranked.verdict == ZeroVerdict::kOverCap)
    return cat(
        ranked.weight.is_dropped ? "at least " : "",
        human_bytes(ranked.weight.memory_bytes - search.memory_cap_bytes),
        " over the cap");
  std::string text = ranked.reason;
  const std::string best = choice_name(search.ranking.front().choice, search);
  for (const std::string& word : {cat(" than ", best), cat(" as ", best)})
    if (const size_t at = text.find(word); at != std::string::npos)
      text.erase(at, word.size());
  return text;
}

namespace {

// Orders choices of equal time.
auto tie_key(const RankedZero& r) {
  const ZeroSizes& z = r.choice.sizes;
  const ZeroSizes& x = r.choice.experts;
  return std::tuple(r.weight.slow_bytes, r.weight.memory_bytes, z.z1, z.z2,
                    z.z3, x.z1, x.z2, x.z3);
}

ZeroVerdict judge(const ZeroWeight& weight, int64_t cap) {
  if (!weight.refusal.empty()) return ZeroVerdict::kRefused;
  if (cap > 0 && weight.memory_bytes > cap) return ZeroVerdict::kOverCap;
  return ZeroVerdict::kFits;
}

bool is_better(const RankedZero& a, const RankedZero& b) {
  if (a.verdict != b.verdict) return a.verdict < b.verdict;
  if (a.verdict == ZeroVerdict::kFits)
    return a.weight.seconds < b.weight.seconds;
  if (a.verdict == ZeroVerdict::kOverCap)
    // A bound says nothing of how near a choice that was not planned comes.
    return std::tie(a.weight.is_dropped, a.weight.memory_bytes) <
           std::tie(b.weight.is_dropped, b.weight.memory_bytes);
  return false;
}

// After sorting by time, equal times are adjacent: each group extends as far as
// its first time allows.
void order_equal_times(std::vector<RankedZero>& ranking) {
  auto begin = ranking.begin();
  while (begin != ranking.end() && begin->verdict == ZeroVerdict::kFits) {
    const double limit = begin->weight.seconds * (1 + kEqualTimes);
    const auto end = std::find_if(begin, ranking.end(), [&](const auto& r) {
      return r.verdict != ZeroVerdict::kFits || r.weight.seconds > limit;
    });
    std::stable_sort(begin, end, [](const auto& a, const auto& b) {
      return tie_key(a) < tie_key(b);
    });
    begin = end;
  }
}

}  // namespace

void one_by_one(size_t count, const std::function<void(size_t)>& work) {
  for (size_t i = 0; i < count; ++i) work(i);
}

ZeroSearch rank_choices(
    const std::vector<ZeroChoice>& choices, int64_t memory_cap_bytes,
    const std::function<ZeroWeight(const ZeroChoice&)>& weigh,
    const EachOf& each) {
  ZeroSearch search;
  search.memory_cap_bytes = memory_cap_bytes;
  search.ranking.resize(choices.size());
  each(choices.size(), [&](size_t i) {
    RankedZero& ranked = search.ranking[i];
    ranked.choice = choices[i];
    ranked.weight = weigh(choices[i]);
    ranked.verdict = judge(ranked.weight, memory_cap_bytes);
  });
  std::stable_sort(search.ranking.begin(), search.ranking.end(), is_better);
  order_equal_times(search.ranking);
  for (RankedZero& ranked : search.ranking)
    ranked.reason = reason_for(ranked, search);
  return search;
}

std::string ZeroSearch::summary() const {
  if (ranking.empty()) return "there are no choices";
  const RankedZero& first = ranking.front();
  const std::string name = choice_name(first.choice, *this);
  switch (first.verdict) {
    case ZeroVerdict::kFits:
      return cat(name, " (", in_words(first.choice.sizes), "): ", first.reason);
    case ZeroVerdict::kOverCap:
      return cat("nothing fits in ", human_bytes(memory_cap_bytes),
                 "; the nearest is ", name, ", which ", first.reason,
                 cure.empty() ? "" : "; try ", cure);
    case ZeroVerdict::kRefused:
      return cat("no choice is possible; ", name, ": ", first.reason);
  }
  return {};
}

namespace {

// Plans each choice, unless its memory cannot fit. Threads may share it.
class Weighing {
 public:
  Weighing(const PlanRequest& request, const Workload& work,
           const CostBasis* cost, const MemoryTerms* terms)
      : request_(request),
        work_(work),
        cost_(cost),
        terms_(terms == nullptr ? MemoryTerms{} : *terms),
        question_{.model = &request.model,
                  .ranks = request.mesh.world(),
                  .rule = &request.rule,
                  .options = request.options,
                  .cost_table = request.cost_table,
                  .work = work,
                  .gradients = terms_.gradients},
        facts_(question_),
        bounds_(question_, facts_, request.mesh) {}

  ZeroWeight operator()(const ZeroChoice& choice) const {
    try {
      return weigh(choice);
    } catch (const UsageError& error) {
      return {.refusal = error.what(), .experts = choice.experts};
    }
  }

 private:
  ZeroWeight weigh(const ZeroChoice& choice) const {
    PlanRequest request = request_;
    request.options.strategy = choice.strategy;
    request.options.zero.sizes = choice.sizes;
    if (choice.experts.z1 > 0) request.options.zero.experts = choice.experts;
    const int64_t cap = request.options.memory_cap_bytes;
    const int64_t least = least_bytes(request);
    if (cap > 0 && least > cap)
      return {.is_dropped = true,
              .memory_bytes = least,
              .experts = choice.experts};
    Plan plan = plan_in_terms(request, terms_);
    if (cost_ != nullptr) plan = with_basis(std::move(plan));
    const IterationPrediction predicted = predict_iteration(plan, work_);
    const RankMemory memory = fullest_memory(predict_in_terms(plan, terms_));
    return {.memory_bytes = memory.total().value() + terms_.activations,
            .slow_bytes = predicted.slow_bytes,
            .fast_bytes = predicted.fast_bytes,
            .seconds = predicted.time.seconds,
            .step_seconds = predicted.time.step_seconds,
            .memory = memory,
            .experts = plan.options.zero.experts,
            .replicas = plan.parts.front().num_replicas(),
            .bucket_unevenness = bucket_unevenness(plan),
            .z2_crosses_nodes = crosses_nodes(plan, &ZeroSizes::z2),
            .z3_crosses_nodes = crosses_nodes(plan, &ZeroSizes::z3)};
  }

  // Experts that are not planned apart have the sizes of dense tensors, or plain
  // ZeRO-1 over their own ranks.
  int64_t least_bytes(const PlanRequest& request) const {
    const Mesh& mesh = request.mesh;
    const ZeroOptions zero =
        resolve_zero(request.options.zero, mesh, request.model);
    ZeroSizes experts = zero.experts;
    if (experts.z1 == 0 && bounds_.has_experts())
      experts = mesh.ep == 1 ? zero.sizes
                             : ZeroSizes{mesh.expert_homes(), 1, 1};
    return bounds_.memory(zero.sizes, experts) + terms_.activations;
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
  MeshQuestion question_;
  TensorFacts facts_;
  MeshBounds bounds_;
};

ZeroComparison described(const PlanRequest& request, const Workload& work,
                         const std::vector<std::string>& strategies,
                         const MemoryTerms* terms) {
  const std::string rule(request.rule.name());
  const CostBasis cost = CostModel(request.rule, request.cost_table).basis();
  ZeroComparison all{.model = request.model.name,
                     .mesh = request.mesh,
                     .rule = rule,
                     .strategy = request.options.strategy,
                     .several_strategies = strategies.size() > 1,
                     .options = request.options,
                     .work = work,
                     .gaps = known_gaps({request.model, request.mesh, rule,
                                         cost, request.options.links, work})};
  std::vector<std::string> names;
  for (const std::string& name : strategies)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  if (!names.empty()) all.strategy = join(names, ", ");
  if (terms != nullptr) {
    all.terms = *terms;
    all.beside_bytes = terms->activations;
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

// Says what makes more sizes fit.
std::string cure_of(const PlanRequest& request, const MemoryTerms* terms) {
  std::vector<std::string> cures;
  if (terms != nullptr && terms->activations > 0) {
    if (!terms->load.recompute) cures.emplace_back("recomputing activations");
    cures.emplace_back("smaller micro-batches");
  }
  cures.emplace_back(request.mesh.tp < request.options.ranks_per_node
                         ? "a larger tp"
                         : "more ranks");
  const std::string last = cures.back();
  cures.pop_back();
  return cures.empty() ? last : cat(join(cures, ", "), " or ", last);
}

ZeroSearch ranked(const PlanRequest& request,
                  const std::vector<ZeroChoice>& choices,
                  const std::function<ZeroWeight(const ZeroChoice&)>& weigh,
                  const MemoryTerms* terms, const EachOf& each) {
  ZeroSearch search =
      rank_choices(choices, request.options.memory_cap_bytes, weigh, each);
  search.cure = cure_of(request, terms);
  return search;
}

}  // namespace

double ZeroComparison::global_batch() const {
  return static_cast<double>(work.num_micro_batches) * mesh.homes() *
         static_cast<double>(work.compute.tokens);
}

bool ZeroComparison::has_experts() const {
  return std::ranges::any_of(search.ranking, [](const RankedZero& row) {
    return row.weight.experts.z1 > 0;
  });
}

ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const ZeroChoices& choices, const CostBasis* cost,
                           const MemoryTerms* terms, const EachOf& each) {
  const Weighing weighing(request, work, cost, terms);
  ZeroComparison all = described(request, work, choices.strategies, terms);
  all.search =
      ranked(request, choices_of(request, choices), weighing, terms, each);
  return all;
}

namespace {

// Weighs choices in addition to a ranking that exists.
ZeroSearch joined(const PlanRequest& request, const ZeroSearch& before,
                  const std::vector<ZeroChoice>& more, const Weighing& weighing,
                  const MemoryTerms* terms, const EachOf& each) {
  std::vector<ZeroChoice> choices;
  for (const RankedZero& row : before.ranking) choices.push_back(row.choice);
  const ZeroSearch added = ranked(request, more, weighing, terms, each);
  choices.insert(choices.end(), more.begin(), more.end());
  const auto weight_of = [&](const ZeroChoice& choice) {
    for (const ZeroSearch* search : {&before, &added})
      for (const RankedZero& row : search->ranking)
        if (row.choice == choice) return row.weight;
    return ZeroWeight{};
  };
  return ranked(request, choices, weight_of, terms, one_by_one);
}

}  // namespace

ZeroComparison search_sizes(const PlanRequest& request, const Workload& work,
                            const SearchedSizes& what, const CostBasis* cost,
                            const MemoryTerms* terms, const EachOf& each) {
  if (what.experts && !has_experts(request.model))
    throw UsageError(
        cat("zero-experts auto: ", request.model.name, " has no experts"));
  const Weighing weighing(request, work, cost, terms);
  ZeroComparison all = described(request, work, what.strategies, terms);
  ZeroChoices second{
      {with_states(request.options.zero.sizes, request.mesh.homes())},
      all_zero_sizes(request.mesh.expert_homes()),
      what.strategies};
  if (what.dense) {
    all.search = ranked(
        request,
        choices_of(request,
                   {all_zero_sizes(request.mesh.homes()), {}, what.strategies}),
        weighing, terms, each);
    const ZeroChoice& best = all.search.ranking.front().choice;
    second.sizes = {best.sizes};
    second.strategies = {best.strategy};
  }
  if (what.experts)
    all.search = joined(request, all.search, choices_of(request, second),
                        weighing, terms, each);
  return all;
}

void take_best(const ZeroComparison& all, PlanOptions& options) {
  if (!all.search.is_found())
    throw UsageError(cat("sizes of ZeRO: ", all.search.summary()));
  const RankedZero& best = all.search.ranking.front();
  options.zero.sizes = best.choice.sizes;
  options.zero.experts = best.weight.experts;
  options.strategy = best.choice.strategy;
}

}  // namespace canzona

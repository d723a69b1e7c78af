#include "canzona/sim/zero_ranking.h"

#include <algorithm>
#include <tuple>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/sim/mesh_bounds.h"
#include "canzona/sim/prediction_inputs.h"

namespace canzona::sim {
namespace {

// The question whose only mesh and micro-batches are those of a request.
MeshQuestion question_of(const PlanRequest& request, const Workload& work,
                         const MemoryTerms& terms, const EachOf& each) {
  MeshQuestion q{.model = &request.model,
                 .ranks = request.mesh.world(),
                 .rule = &request.rule,
                 .options = request.options,
                 .cost_table = request.cost_table,
                 .work = work,
                 .activations = {},
                 .experts_assumed = terms.load.experts_assumed,
                 .gradients = terms.gradients,
                 .each = each};
  if (terms.load.tokens > 0)
    q.activations = terms.load.dtype;
  else if (terms.activations > 0)
    q.activation_bytes = terms.activations;
  const BatchSplit batch{work.compute.tokens, work.num_micro_batches};
  q.global_batch =
      batch.tokens * batch.num_micro_batches * request.mesh.homes();
  q.limits.mesh = request.mesh;
  q.limits.batch = batch;
  q.limits.recompute = work.compute.recompute;
  return q;
}

ZeroRanking described(const PlanRequest& request, const Workload& work,
                      const std::vector<std::string>& strategies,
                      const MemoryTerms* terms) {
  const std::string rule(request.rule.name());
  const CostBasis cost = CostModel(request.rule, request.cost_table).basis();
  ZeroRanking all{.model = request.model.name,
                  .mesh = request.mesh,
                  .rule = rule,
                  .strategy = join(strategies, ", "),
                  .several_strategies = strategies.size() > 1,
                  .options = request.options,
                  .work = work,
                  .gaps = known_gaps({request.model, request.mesh, rule, cost,
                                      request.options.links, work})};
  if (terms != nullptr) all.terms = *terms;
  return all;
}

std::vector<std::string> tried(const std::vector<std::string>& asked,
                               const PlanRequest& request) {
  std::vector<std::string> names;
  for (const std::string& name : asked)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names.empty() ? std::vector{request.options.strategy} : names;
}

// Bounds of layouts under a strategy.
struct Bounds {
  explicit Bounds(const MeshQuestion& asked)
      : question(asked),
        facts(question),
        of_mesh(question, facts, *question.limits.mesh) {}
  Bounds(const Bounds&) = delete;
  Bounds& operator=(const Bounds&) = delete;

  // Returns what a rank needs at least. Experts that are not planned apart have
  // the sizes of dense tensors, or plain ZeRO-1 over their own ranks.
  int64_t least_bytes(const MeshChoice& choice) const {
    const Mesh& mesh = choice.mesh;
    ZeroSizes experts = choice.experts;
    if (experts.z1 == 0 && of_mesh.has_experts())
      experts =
          mesh.ep == 1 ? choice.dense : ZeroSizes{mesh.expert_homes(), 1, 1};
    return of_mesh.memory(choice.dense, experts) +
           terms_of(question, choice).activations;
  }

  const MeshQuestion question;
  const TensorFacts facts;
  const MeshBounds of_mesh;
};

// The sizes as a plan has them: those of experts are left out if both kinds of
// tensors are planned as one part.
MeshChoice settled_choice(const MeshQuestion& question, MeshChoice choice) {
  const ZeroOptions zero = resolve_zero(options_of(question, choice).zero,
                                        choice.mesh, *question.model);
  choice.dense = zero.sizes;
  choice.experts = zero.experts;
  return choice;
}

// Plans a choice, unless its memory cannot fit.
RankedMesh weigh(const Bounds& bounds, const MeshChoice& choice) {
  const MeshQuestion& question = bounds.question;
  RankedMesh row{.strategy = question.options.strategy};
  row.weighed.choice = choice;
  try {
    row.weighed.choice = settled_choice(question, choice);
    const int64_t cap = question.options.memory_cap_bytes;
    const int64_t least = bounds.least_bytes(row.weighed.choice);
    if (cap > 0 && least > cap)
      row.least_bytes = least;
    else
      row.weighed = weigh_mesh(question, row.weighed.choice);
    if (row.least_bytes > 0 || !row.weighed.fits)
      row.verdict = MeshVerdict::kOverCap;
  } catch (const UsageError& error) {
    row.verdict = MeshVerdict::kRefused;
    row.reason = error.what();
  }
  return row;
}

// A bound says nothing of how near a choice that was not planned comes.
bool is_better(const RankedMesh& a, const RankedMesh& b) {
  if (a.verdict != b.verdict) return a.verdict < b.verdict;
  if (a.fits()) return a.weighed.seconds() < b.weighed.seconds();
  if (a.verdict == MeshVerdict::kRefused) return false;
  return std::tuple(!a.is_planned(), a.memory_bytes()) <
         std::tuple(!b.is_planned(), b.memory_bytes());
}

// Orders rows of equal time.
auto tie_key(const RankedMesh& row) {
  const ZeroSizes &z = row.weighed.choice.dense,
                  &x = row.weighed.choice.experts;
  return std::tuple(row.weighed.slow_bytes, row.weighed.memory_bytes(), z.z1,
                    z.z2, z.z3, x.z1, x.z2, x.z3);
}

// After sorting by time, equal times are adjacent: each group extends as far as
// its first time allows.
void sort_rows(std::vector<RankedMesh>& rows) {
  std::stable_sort(rows.begin(), rows.end(), is_better);
  auto begin = rows.begin();
  while (begin != rows.end() && begin->fits()) {
    const double limit = begin->weighed.seconds() * (1 + kEqualTimes);
    const auto end = std::find_if(begin, rows.end(), [&](const auto& row) {
      return !row.fits() || row.weighed.seconds() > limit;
    });
    std::stable_sort(begin, end, [](const auto& a, const auto& b) {
      return tie_key(a) < tie_key(b);
    });
    begin = end;
  }
}

void settle(const MeshQuestion& question, MeshAnswer& answer) {
  sort_rows(answer.kinds);
  give_reasons(answer, question.options.memory_cap_bytes);
}

}  // namespace

ZeroRanking rank_sizes(const PlanRequest& request, const Workload& work,
                       const ZeroChoices& choices, const MemoryTerms* terms,
                       const EachOf& each) {
  MeshQuestion question = question_of(
      request, work, terms == nullptr ? MemoryTerms{} : *terms, one_by_one);
  const std::vector<std::string> strategies =
      tried(choices.strategies, request);
  ZeroRanking all = described(request, work, strategies, terms);
  const std::vector<ZeroSizes> own =
      choices.experts.empty() ? std::vector{request.options.zero.experts}
                              : choices.experts;
  std::vector<RankedMesh>& rows = all.answer.kinds;
  for (const std::string& strategy : strategies) {
    question.options.strategy = strategy;
    const Bounds bounds(question);
    std::vector<MeshChoice> asked;
    for (const ZeroSizes& dense : choices.sizes)
      for (const ZeroSizes& experts : own)
        asked.push_back({.mesh = request.mesh,
                         .dense = dense,
                         .experts = experts,
                         .tokens = question.limits.batch->tokens,
                         .num_micro_batches = work.num_micro_batches,
                         .recompute = work.compute.recompute,
                         .reach = request.options.zero.reach});
    const size_t before = rows.size();
    rows.resize(before + asked.size());
    each(asked.size(),
         [&](size_t i) { rows[before + i] = weigh(bounds, asked[i]); });
  }
  all.answer.counts.in_space = std::ssize(rows);
  all.answer.counts.over_cap =
      std::ssize(rows) -
      std::ranges::count(rows, MeshVerdict::kFits, &RankedMesh::verdict);
  settle(question, all.answer);
  if (all.answer.is_found() || rows.empty()) return all;
  const RankedMesh& first = rows.front();
  all.answer.refusal = first.reason;
  if (first.verdict == MeshVerdict::kRefused) return all;
  const int64_t cap = question.options.memory_cap_bytes;
  const int64_t lacks = first.memory_bytes() - cap;
  question.limits.zero = to_string(first.weighed.choice.dense);
  all.answer.nearest = {first.weighed.choice, cap, lacks,
                        cure_of(question, lacks)};
  return all;
}

ZeroRanking search_sizes(const PlanRequest& request, const Workload& work,
                         const SearchedSizes& what, const CostBasis* cost,
                         const MemoryTerms* terms, const EachOf& each) {
  if (what.experts && !has_experts(request.model))
    throw UsageError(
        cat("zero-experts auto: ", request.model.name, " has no experts"));
  MeshQuestion question = question_of(
      request, work, terms == nullptr ? MemoryTerms{} : *terms, each);
  if (cost != nullptr) question.cost_basis = *cost;
  const ZeroOptions& zero = request.options.zero;
  if (zero.reach != Reach::kAuto) question.limits.reach = zero.reach;
  if (!what.dense)
    question.limits.zero =
        to_string(with_states(zero.sizes, request.mesh.homes()));
  question.limits.experts_beside = !what.experts && zero.experts.z1 == 0;
  if (!what.experts && zero.experts.z1 > 0)
    question.limits.zero_experts = to_string(zero.experts);
  const std::vector<std::string> strategies = tried(what.strategies, request);
  ZeroRanking all = described(request, work, strategies, terms);
  MeshAnswer& answer = all.answer;
  for (const std::string& strategy : strategies) {
    question.options.strategy = strategy;
    MeshAnswer own = search_meshes(question);
    for (RankedMesh& row : own.kinds) {
      row.strategy = strategy;
      row.weighed.choice = settled_choice(question, row.weighed.choice);
      answer.kinds.push_back(row);
    }
    answer.counts.in_space += own.counts.in_space;
    answer.counts.over_cap += own.counts.over_cap;
    answer.counts.simulated += own.counts.simulated;
    answer.proven &= own.proven;
    answer.gap = std::max(answer.gap, own.gap);
    answer.refusal = own.refusal;
    if (own.nearest) answer.nearest = own.nearest;
  }
  settle(question, answer);
  return all;
}

void take_best(const ZeroRanking& all, PlanOptions& options) {
  if (!all.answer.is_found())
    throw UsageError(cat("sizes of ZeRO: ", summary_of(all)));
  const RankedMesh& best = all.rows().front();
  options.zero.sizes = best.weighed.choice.dense;
  options.zero.experts = best.weighed.choice.experts;
  options.zero.reach = best.weighed.choice.reach;
  options.strategy = best.strategy;
}

std::string summary_of(const ZeroRanking& all) {
  if (!all.answer.is_found()) return all.answer.summary();
  const RankedMesh& best = all.rows().front();
  const MeshChoice& choice = best.weighed.choice;
  std::string name = to_string(choice.dense);
  if (choice.experts.z1 > 0)
    name += cat(" experts ", to_string(choice.experts));
  if (all.several_strategies) name += cat(" ", best.strategy);
  return cat(name, " (", in_words(choice.dense), "): ", best.reason);
}

double ZeroRanking::global_batch() const {
  return static_cast<double>(work.num_micro_batches) * mesh.homes() *
         static_cast<double>(work.compute.tokens);
}

bool ZeroRanking::has_experts() const {
  return std::ranges::any_of(rows(), [](const RankedMesh& row) {
    return row.weighed.choice.experts.z1 > 0;
  });
}

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

}  // namespace canzona::sim

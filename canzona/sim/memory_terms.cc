#include "canzona/sim/memory_terms.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"

namespace canzona {
namespace {

int64_t bytes_of_gradient(const MemoryTerms& terms) {
  return bytes_per_parameter(terms.gradients);
}

// Returns how many bytes every rank saves compared with the fp32 gradients that
// a plan counts.
int64_t saved_gradients(PlanRequest request, const MemoryTerms& terms) {
  if (bytes_of_gradient(terms) == kBytesPerFp32) return 0;
  request.options.memory_cap_bytes = 0;
  request.may_take = nullptr;
  int64_t least = INT64_MAX;
  for (const RankCost& rank : predict(make_plan(request)))
    least = std::min(least, rank.memory.gradients.value());
  return least - least * bytes_of_gradient(terms) / kBytesPerFp32;
}

}  // namespace

MemoryTerms memory_terms(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load, ParameterDtype gradients,
                         const PlanOptions& options) {
  const MemoryTerms terms{load, activation_bytes(model, mesh, load), gradients,
                          options.memory_cap_bytes};
  if (terms.cap_bytes > 0 && terms.activations >= terms.cap_bytes)
    throw UsageError(cat("memory-cap ", human_bytes(terms.cap_bytes),
                         ": activations alone take ",
                         human_bytes(terms.activations),
                         "; try to recompute them, or fewer tokens, or leave "
                         "them out with activations=none"));
  return terms;
}

std::vector<RankCost> predict_in_terms(const Plan& plan,
                                       const MemoryTerms& terms) {
  std::vector<RankCost> ranks = predict(plan);
  for (RankCost& rank : ranks)
    rank.memory.gradients = Bytes(rank.memory.gradients.value() *
                                  bytes_of_gradient(terms) / kBytesPerFp32);
  return ranks;
}

const RankMemory& fullest_memory(const std::vector<RankCost>& ranks) {
  return std::ranges::max_element(
             ranks, {},
             [](const RankCost& rank) { return rank.memory.total().value(); })
      ->memory;
}

Plan plan_in_terms(const PlanRequest& request, const MemoryTerms& terms) {
  const int64_t cap = request.options.memory_cap_bytes;
  if (cap == 0) return make_plan(request);
  const int64_t left =
      cap - terms.activations + saved_gradients(request, terms);
  PlanRequest own = request;
  own.options.memory_cap_bytes = left;
  Plan plan = make_plan(own);
  // The cap is kept as given, unless savings elsewhere let the plan exceed it.
  const bool holds = fullest_memory(predict(plan)).total().value() <= cap;
  plan.options.memory_cap_bytes = holds ? cap : left;
  plan.digest = digest_of(plan);
  return plan;
}

std::string describe_activations(const MemoryTerms& terms, const Mesh& mesh) {
  const ActivationLoad& load = terms.load;
  if (load.tokens == 0) return "not counted";
  const int64_t in_flight = std::min<int64_t>(mesh.pp, load.num_micro_batches);
  return cat("estimated for ", load.tokens, " tokens of a micro-batch in ",
             to_string(load.dtype), ", ", in_flight,
             in_flight == 1 ? " micro-batch" : " micro-batches", " in flight",
             load.recompute ? ", layers recomputed" : "",
             load.experts_assumed
                 ? cat(", ", load.experts_per_token,
                       " experts per token assumed: the model does not say")
                 : "",
             "; activations=none leaves them out");
}

}  // namespace canzona

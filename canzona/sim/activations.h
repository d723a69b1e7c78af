// Estimates activations from the model's shapes: what a micro-batch keeps on a
// rank for its backward.
//
//   int64_t bytes = activation_bytes(model, mesh, {.tokens = 4096});
//
// The estimate is for a decoder with fused attention (no length × length
// scores), which recomputes norms and gated products in backward and makes
// logits in chunks. It matches what `canzona train` reserves to within a few
// per cent. Per token and layer a rank keeps
//
//   the layer's input, the input of its feed-forward block     2 · hidden
//   outputs of products that leave the stream (qkv, gate, up)  rows / tp
//   attention's output and its log-sums              (width + heads) / tp
//
// and, for layers with experts, those rows and their input for each expert that
// a token visits, spread evenly over the ranks. With recomputation only inputs
// are kept, and everything else for a single layer. One layer's scratch is
// added. 1F1B has up to pp − stage micro-batches in flight. An engine that
// keeps more needs more: see docs/simulation.md. All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/options.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/shapes/tensor.h"

namespace canzona::sim {

struct ActivationLoad {
  int64_t tokens = 0;  // of a micro-batch per data-parallel rank; 0: none
  int64_t num_micro_batches = 1;
  int64_t experts_per_token = 0;  // if there are experts
  DType dtype = DType::kBf16;     // logits are fp32
  bool recompute = false;         // layers keep only their input
  // True if the model does not say how many experts a token visits.
  bool experts_assumed = false;
  friend bool operator==(const ActivationLoad&,
                         const ActivationLoad&) = default;
};

// Returns the activations of a rank of the stage that needs most. Throws
// UsageError if they exceed 64 bits.
int64_t activation_bytes(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load);

// Columns of the embedding; 0 if there is none.
int64_t hidden_width(const Model& model);
// Query heads × head size, or the model's width if they are not known.
int64_t attention_width(const Model& model);

// MemoryTerms say what counts against a memory cap: the plan's memory,
// gradients in their type at rest, and activations.
//
//   const MemoryTerms terms{.activations = activation_bytes(…)};
//   const Plan plan = plan_in_terms(request, terms);
//   for (const RankCost& rank : predict_in_terms(plan, terms)) …
//
// A plan counts fp32 gradients and knows no activations; its cap is what these
// terms leave for it. All functions are pure.

struct MemoryTerms {
  ActivationLoad load = {};  // tokens = 0: activations are not counted
  int64_t activations = 0;   // bytes of a rank, in the stage with the most
  // The type of gradients at rest; sums travel, and wait in pools, in fp32.
  DType gradients = DType::kFp32;
  int64_t cap_bytes = 0;  // compared with the sum; 0: no cap
  friend bool operator==(const MemoryTerms&, const MemoryTerms&) = default;
};

// Counts activations and uses the cap of the options. Throws UsageError if
// activations alone exceed it.
MemoryTerms memory_terms(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load, DType gradients,
                         const PlanOptions& options);

// predict(), with gradients in their type at rest.
std::vector<RankCost> predict_in_terms(const Plan& plan,
                                       const MemoryTerms& terms);
// Returns the memory of the rank that needs most, without activations.
const RankMemory& fullest_memory(const std::vector<RankCost>& ranks);

// make_plan() under what the terms leave of the request's cap. The plan keeps
// the request's cap unless it needs more than that; then it keeps what was
// left, which is more.
Plan plan_in_terms(const PlanRequest& request, const MemoryTerms& terms);

// "estimated for 4096 tokens of a micro-batch in bf16, …", or why there are
// none.
std::string describe_activations(const MemoryTerms& terms, const Mesh& mesh);

}  // namespace canzona::sim

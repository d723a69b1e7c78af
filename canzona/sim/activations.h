// Activations: what a micro-batch leaves on a rank for its backward, estimated
// from the model's shapes.
//
//   int64_t bytes = activation_bytes(model, mesh, {.tokens = 4096});
//
// The estimate is that of a decoder with fused attention (no length × length
// scores), whose norms and gated products are computed again in backward, and
// whose logits are made in chunks: what `canzona train` reserves, to within a
// few per cent. Per token and layer a rank keeps
//
//   the layer's input, the input of its feed-forward block     2 · hidden
//   outputs of products that leave the stream (qkv, gate, up)  rows / tp
//   attention's output and its log-sums              (width + heads) / tp
//
// of experts those rows for each expert that a token visits, with their input,
// evenly spread over the ranks. With recomputation only inputs are kept, and
// the rest once. Beside it stands one layer's scratch. 1F1B has up to pp −
// stage micro-batches in flight. An engine that keeps more needs more: see
// docs/simulation.md. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/plan/mesh.h"
#include "canzona/plan/options.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

struct ActivationLoad {
  int64_t tokens = 0;  // of a micro-batch on a data-parallel rank; 0: none
  int64_t num_micro_batches = 1;
  int64_t experts_per_token = 0;                 // where there are experts
  ParameterDtype dtype = ParameterDtype::kBf16;  // logits are fp32
  bool recompute = false;  // layers keep their input alone
  // The model does not say how many experts a token visits.
  bool experts_assumed = false;
  friend bool operator==(const ActivationLoad&,
                         const ActivationLoad&) = default;
};

// Returns the activations of a rank of the stage that needs most. UsageError if
// it exceeds 64 bits.
int64_t activation_bytes(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load);

// Columns of the embedding; 0 where there is none.
int64_t hidden_width(const Model& model);
// Query heads × head size, or the width of the model where they are not known.
int64_t attention_width(const Model& model);

}  // namespace canzona

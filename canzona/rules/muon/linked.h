// The arithmetic of the links around Newton-Schulz (links.h), on whole matrices
// at their owner, a part of the batch at a time. Each matrix's result depends
// on that matrix alone.
#pragma once

#include <functional>

#include "canzona/linalg/engine.h"
#include "canzona/rules/muon/links.h"
#include "canzona/rules/rule.h"

namespace canzona {

// What the owner gets: the blend; the gradient and the weights where the links
// need them, otherwise no data; the second moments of all matrices.
struct LinkedInput {
  ConstMatrices blend{};
  ConstMatrices grad{};
  ConstMatrices weights{};
  Run moments{};
  DecompositionHook* hook = nullptr;
};

// Writes the orthogonal factors of `u`, matrices from number `begin` of the
// batch on. If LinkedInput has no blend, `u` has no data.
using Orthogonalize =
    std::function<void(ConstMatrices u, Matrices o, int64_t begin)>;

// Writes the update to `out`. With a constraint that is what the weights lose,
// and `apply` says how they move before they are projected.
void run_links(Engine& engine, const MuonLinks& links, const LinkedInput& in,
               Matrices out, const Apply& apply, const Orthogonalize& factor);

}  // namespace canzona

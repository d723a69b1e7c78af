// The arithmetic of the links after Newton-Schulz (links.h), on whole matrices
// at their owner, a part of the batch at a time. Each matrix's result depends
// on that matrix alone.
#pragma once

#include <functional>

#include "canzona/linalg/engine.h"
#include "canzona/rules/muon/links.h"
#include "canzona/rules/rule.h"

namespace canzona::rules {

// The owner gets these: the blend and the gradient where the second moment
// needs them, and the weights where they are constrained, otherwise no data;
// the second moments of all matrices.
struct LinkedInput {
  ConstMatrices blend{};
  ConstMatrices grad{};
  ConstMatrices weights{};  // may be scattered
  Run moments{};
};

// Writes the orthogonal factors `o` of the matrices from number `begin` of the
// batch on.
using Orthogonalize = std::function<void(Matrices o, int64_t begin)>;

// An update that is not handed back goes into weights, by `apply` unless
// they are constrained. `rounded` is null or has one address per matrix.
struct LinkedStore {
  Matrices weights{};  // may be scattered
  Apply apply{};
  uint16_t* const* rounded = nullptr;
};

// Writes the update to `out`. With a constraint that is what the weights lose,
// and `moved` says how they move before they are projected. With `store` the
// weights take it and `out` is scratch, with the same bits.
void run_links(Engine& engine, const MuonLinks& links, const LinkedInput& in,
               Matrices out, const Apply& moved, const Orthogonalize& factor,
               const LinkedStore* store = nullptr);

}  // namespace canzona::rules

// Newton–Schulz of one matrix by a team (rules/strips.h).
#pragma once

#include <memory>

#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/strips.h"

namespace canzona {

// Returns null if the engine's algebra cannot share. Requires at least as many
// strips as members. Operands come from the arena, which must have an open
// scope, and live as long as the transform; the plan must outlive it.
std::unique_ptr<SharedTransform> share_newton_schulz(
    Engine& engine, Arena& arena, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, const TeamSeat& seat);

// Newton–Schulz of one matrix whose strips come one by one
// (rules/strips.h).

// Returns null if the engine's algebra cannot sum strips before it knows the
// norm. The plan and the engine must outlive the transform. `dtype` is the type
// of the matrices.
std::unique_ptr<StripTransform> newton_schulz_by_strips(
    Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, DType dtype);

}  // namespace canzona

// Newton–Schulz of one matrix by a team (rules/strips.h).
#pragma once

#include <memory>

#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/strips.h"

namespace canzona {

// Null if the algebra of the engine cannot share. Requires at least as many
// strips as members. Operands come from the arena, which has an open scope, and
// live as long as the transform; the plan outlives it.
std::unique_ptr<SharedTransform> share_newton_schulz(
    Engine& engine, Arena& arena, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, const TeamSeat& seat);

// Newton–Schulz of one matrix whose strips come one by one
// (rules/strips.h).

// Null if the algebra of the engine cannot sum strips before it knows the norm.
// The plan and the engine outlive the transform. `dtype` is that of matrices.
std::unique_ptr<StripTransform> newton_schulz_by_strips(
    Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, DType dtype);

}  // namespace canzona

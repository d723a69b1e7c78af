// Newton–Schulz of one matrix by a team (rules/shared_transform.h).
#pragma once

#include <memory>

#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/shared_transform.h"

namespace canzona {

// Null if the algebra of the engine cannot share. Requires at least as many
// strips as members. Operands come from the arena, which has an open scope, and
// live as long as the transform; the plan outlives it.
std::unique_ptr<SharedTransform> share_newton_schulz(
    Engine& engine, Arena& arena, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, const TeamSeat& seat);

}  // namespace canzona

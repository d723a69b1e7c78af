// Newton–Schulz of one matrix whose strips come one by one
// (rules/strip_transform.h).
#pragma once

#include <memory>

#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/strip_transform.h"

namespace canzona {

// Null if the algebra of the engine cannot sum strips before it knows the norm.
// The plan and the engine outlive the transform. `dtype` is that of matrices.
std::unique_ptr<StripTransform> newton_schulz_by_strips(
    Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, DType dtype);

}  // namespace canzona

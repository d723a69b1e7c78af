// Shampoo of a matrix that is one block with two factors, of which in refreshes
// a second rank, the helper, takes the root of one while the owner takes that
// of the other. Roots are those of a rank alone, from the same numbers, so no
// bit depends on a helper.
#pragma once

#include <memory>

#include "canzona/linalg/engine.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/strips.h"

namespace canzona::rules {

// The owner is member 0 of two, the helper member 1. Requires a layout with a
// helped axis; the engine and the options must outlive the transform.
std::unique_ptr<SharedTransform> help_shampoo(Engine& engine,
                                              const ShampooOptions& options,
                                              MatrixShape shape,
                                              const TeamSeat& seat,
                                              DType dtype);

}  // namespace canzona::rules

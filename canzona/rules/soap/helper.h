// SOAP of a matrix with two factors, of which in refreshes a second rank, the
// helper, decomposes one while the owner decomposes the other. Decompositions
// are those of a rank alone, on the same numbers, so no bit depends on a
// helper.
//
//   owner    sum       statistics; the helper's factor leaves as a triangle
//   both     iterate   a basis each; the helper's comes back
//   owner    multiply  moments move to both bases, update
//
// The helper keeps a copy of the basis that it replaces.
#pragma once

#include <memory>

#include "canzona/rules/soap/update.h"
#include "canzona/rules/strips.h"

namespace canzona {

// The owner is member 0 of two, the helper member 1. Requires a layout with a
// helped axis; engine, arena and options must outlive the transform.
std::unique_ptr<SharedTransform> help_soap(Engine& engine, Arena& arena,
                                           const SoapOptions& soap,
                                           const SoapLayout& layout,
                                           const TeamSeat& seat, DType dtype);

}  // namespace canzona

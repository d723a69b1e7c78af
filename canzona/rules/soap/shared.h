// SOAP of one matrix by several ranks: a team that shares its strips
// (rules/strips.h), or an owner and its helper. No bit depends on who computes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "canzona/rules/soap/update.h"
#include "canzona/rules/strips.h"

namespace canzona::rules {

// A matrix with one factor is cut into strips along the other side. The
// factor's statistics are the sum over strips by the binary tree; everything
// else is done strip by strip, each copied to contiguous memory. So ranks that
// have some strips each compute the bits of one that has all of them.
//
//   const SoapStrips all = soap_strips(shape, layout.cut(soap), {});
//   soap_update_by_strips(engine, soap, call, all, runs);

// Adjacent strips of a matrix, side by side in memory.
struct SoapStrips {
  std::array<int64_t, 2> dims{};  // of all of them together
  int axis = 0;                   // of the factor
  int count = 1;
  std::array<int64_t, kMostStrips + 1> at{};  // borders along the other axis

  int64_t side() const { return dims[static_cast<size_t>(axis)]; }
};

// Returns the strips of a member of a team, or all of them for a team of one.
SoapStrips soap_strips(MatrixShape shape, const SoapCut& cut,
                       const TeamSeat& seat);

// One step at the owner, like soap_update: `tensors` are whole matrices with
// all their strips.
void soap_update_by_strips(Engine& engine, const SoapOptions& soap,
                           const SoapCall& call, const SoapStrips& strips,
                           const SoapBlockRuns& tensors);

// The bases of one tensor, found where they are sent from or to (facts.h): in
// memory of the engine. Flags say what the host knows of them.
void soap_put_in(SoapBasisChange& change, Run factor, int64_t side);
void soap_send_flags(Engine& engine, const SoapBasisChange& change,
                     std::byte* factor);
void soap_get_flags(Engine& engine, SoapBasisChange& change,
                    const std::byte* factor);

// A member's part of a step that a team shares. The head adds the sum to its
// factor; in a refresh it decomposes that, and everyone gets the basis and
// moves its own moments. Requires at least as many strips as members; the
// engine and the options must outlive the transform.
std::unique_ptr<SharedTransform> share_soap(Engine& engine,
                                            const SoapOptions& soap,
                                            MatrixShape shape,
                                            const SoapCut& cut,
                                            const TeamSeat& seat, DType dtype);

// Of a matrix with two factors, a second rank, the helper, decomposes one in
// refreshes while the owner decomposes the other. Decompositions are those of a
// rank alone, on the same numbers.
//
//   owner    sum       statistics; the helper's factor leaves as a triangle
//   both     iterate   a basis each; the helper's comes back
//   owner    multiply  moments move to both bases, update
//
// The helper keeps a copy of the basis that it replaces.

// The owner is member 0 of two, the helper member 1. Requires a layout with a
// helped axis; engine, arena and options must outlive the transform.
std::unique_ptr<SharedTransform> help_soap(Engine& engine, Arena& arena,
                                           const SoapOptions& soap,
                                           const SoapLayout& layout,
                                           const TeamSeat& seat, DType dtype);

}  // namespace canzona::rules

// The parts of a plan: tensors that are cut over the same ranks. Most plans
// have one. If experts are cut over other ranks than dense tensors, there are
//
//   plan.parts[0]       dense tensors, over all dp x cp x ep homes
//   plan.parts[1 + e]   experts of ep coordinate e, over its dp x cp homes
//
// Slices (zero.h) of dense tensors lie on runs of consecutive homes, those of
// experts on runs of consecutive homes of one ep coordinate: no single grid has
// both. So each part is planned for itself, on a mesh without ep. A rank works
// in two of them, and its memory, bytes and loads are the sums of both.
//
// ZeRO-1 needs no parts: there, homes of both kinds are cut by the same grid.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

// Sizes of experts that lie on the ranks over which dense tensors are cut: as
// many of their homes as a group of z homes has of each ep coordinate.
ZeroSizes experts_beside(const ZeroSizes& sizes, const Mesh& mesh);

// Sizes of dense tensors and of experts, checked, everything filled in. Those
// of experts are left out where both are planned as one. UsageError names what
// does not divide.
ZeroOptions resolve_zero(const ZeroOptions& options, const Mesh& mesh,
                         const Model& model);

bool has_experts(const Model& model);

// True if experts are cut over other ranks than dense tensors.
bool cuts_experts_apart(const SettledRequest& whole);
int32_t num_parts(const SettledRequest& whole);

// Sorts the tensors of `plan`, whose request is settled, into parts of which
// nothing is decided.
void make_parts(Plan& plan);
// The same without the tensors and matrices themselves.
std::vector<PlanPart> parts_without_tensors(const SettledRequest& whole);
// A part's options follow from those of the whole. A memory cap is on the sum
// of a rank's parts, so that no part has it.
PlanOptions options_of_part(const SettledRequest& whole, const PlanPart& part);

// The parts in which a rank of the whole works, and as which of their ranks.
struct RankInPart {
  int32_t part = 0;
  int32_t rank = 0;
};
std::vector<RankInPart> parts_of_rank(const Plan& plan, int32_t world_rank);
// One part of each kind: a rank works in as many, and experts of all
// coordinates are alike.
std::span<const PlanPart> kinds_of_parts(const Plan& plan);

// A matrix of the whole, as its part numbers it.
struct MatrixInPart {
  const PlanPart* part = nullptr;
  int32_t matrix = 0;
};
MatrixInPart matrix_in_part(const Plan& plan, int32_t matrix);

}  // namespace canzona

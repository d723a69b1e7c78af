// Plans in parts: expert tensors that are cut over other ranks than dense ones.
//
//   plan.parts[0]       dense tensors, over all dp x cp x ep homes
//   plan.parts[1 + e]   experts of ep coordinate e, over its dp x cp homes
//
// Slices (zero.h) of dense tensors lie on runs of consecutive homes, those of
// experts on runs of consecutive homes of one ep coordinate: no single grid has
// both. So each part is a plan of its own, made by the same planner: its own
// tensors, on a mesh without ep. A rank works in two of them, and its memory,
// bytes and loads are the sums of both.
//
// ZeRO-1 needs no parts: there, homes of both kinds are cut by the same grid.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

// Whether experts are, or will be, planned apart.
inline bool is_in_parts(const Plan& plan) {
  return plan.options.zero.experts.z1 > 0;
}

// Sizes of experts that lie on the ranks over which dense tensors are cut: as
// many of their homes as a group of z homes has of each ep coordinate.
ZeroSizes experts_beside(const ZeroSizes& sizes, const Mesh& mesh);

// Sizes of dense tensors and of experts, checked, everything filled in. Those
// of experts are left out where both are planned as one. UsageError names what
// does not divide.
ZeroOptions resolve_zero(const ZeroOptions& options, const Mesh& mesh,
                         const Model& model);

bool has_experts(const Model& model);

// "dense tensors", "experts of ep 1", or, with ep = 1, "experts".
std::string part_name(const Plan& whole, size_t part);

inline int32_t num_parts(const Mesh& mesh) { return 1 + mesh.ep; }
int32_t part_of(const Mesh& mesh, const Model& model, const Tensor& tensor);

// The whole plan's numbers of a part's tensors, in order.
std::vector<int32_t> tensors_of_part(const Plan& whole, int32_t part);
Model model_of_part(const Plan& whole, int32_t part);
Mesh mesh_of_part(const Mesh& mesh, int32_t part);
PlanOptions options_of_part(const Plan& whole, int32_t part);
PartPlace place_of_part(const Plan& whole, int32_t part);

// A part with all that follows from the whole, and no decision made.
Plan undecided_part(const Plan& whole, int32_t part);

// The parts in which a rank of the whole works, and as which of their ranks.
struct RankInPart {
  int32_t part = 0;
  int32_t rank = 0;
};
std::vector<RankInPart> parts_of_rank(const Plan& whole, int32_t world_rank);

}  // namespace canzona

// The layouts among which `--mesh auto` chooses: meshes, sizes of ZeRO,
// micro-batches, recomputation and collectives.
//
//   MeshLimits limits;
//   limits.fix("tp=8,zero=zero3,recompute=on,tokens=8192");
//   limits.forbid("pp,ep");
//   for (const Mesh& mesh : meshes_in_space(model, 64, 8, limits)) …
//
// A mesh is in the space if its axes multiply to the number of ranks and divide
// what they cut (check_mesh()), and if tp stays inside a node unless limits
// allow more. Values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/mesh.h"
#include "canzona/plan/zero.h"
#include "canzona/shapes/tensor.h"

namespace canzona::sim {

struct MeshChoice {
  Mesh mesh;               // cp = 1
  ZeroSizes dense = {};    // over all homes
  ZeroSizes experts = {};  // over homes of experts; z1 = 0: no experts
  int64_t tokens = 0;      // of a micro-batch on a data-parallel rank
  int64_t num_micro_batches = 1;
  bool recompute = false;  // layers keep only their input
  Reach reach = Reach::kDirect;
  friend bool operator==(const MeshChoice&, const MeshChoice&) = default;
};

// "dp=8,tp=8 zero1, 4 x 8192 tokens, recompute, collectives node".
std::string to_string(const MeshChoice& choice);

// How an iteration's tokens are divided into micro-batches on a rank.
struct BatchSplit {
  int64_t tokens = 0;  // of a micro-batch
  int64_t num_micro_batches = 1;
  friend bool operator==(const BatchSplit&, const BatchSplit&) = default;
};

// What the user fixes or forbids. Anything that is not fixed is searched.
struct MeshLimits {
  // The only mesh, which has been checked, and its only micro-batches. What is
  // left are sizes of ZeRO, recomputation and collectives.
  std::optional<Mesh> mesh = {};
  std::optional<BatchSplit> batch = {};
  // Fixed axes, sizes and settings.
  std::optional<int32_t> dp, tp, pp, ep;
  // As a user types them (parse_zero): "zero3", "hier:8", "z1=16,z2=4,z3=4".
  // Meshes where they do not divide are not in the space.
  std::string zero = {};
  std::string zero_experts = {};
  // Experts stay on the ranks on which dense tensors are cut.
  bool experts_beside = false;
  std::optional<int64_t> tokens;
  std::optional<bool> recompute;
  std::optional<Reach> reach;
  // Forbidden: axes above 1, gradients or parameters cut over all ranks that
  // have a copy (zero2, zero3), groups smaller than that (hierarchical ZeRO).
  bool no_tp = false, no_pp = false, no_ep = false;
  bool no_zero = false;          // anything but ZeRO-1
  bool no_hierarchical = false;  // anything but zero1, zero2 and zero3
  bool no_recompute = false;
  bool tp_across_nodes = false;

  // Reads "tp=8,zero=zero3,recompute=on"; words: dp, tp, pp, ep, zero,
  // zero-experts, tokens, recompute (on, off), collectives (direct, node).
  // Sizes of ZeRO with commas are written z1=16:z2=4:z3=4. Throws UsageError,
  // which names the word and what was expected.
  void fix(std::string_view text, std::string_view option = "fix");
  // Reads "pp,hierarchical"; words: tp, pp, ep, zero, hierarchical, recompute.
  void forbid(std::string_view text, std::string_view option = "forbid");
  // Returns an axis both fixed and forbidden, such as "tp=8"; "" if none is.
  std::string contradiction() const;
  friend bool operator==(const MeshLimits&, const MeshLimits&) = default;
};

// The meshes of the space, small tp, pp and ep first.
struct MeshSpace {
  std::vector<Mesh> meshes;
  int64_t refused = 0;       // by divisibility or by nodes
  std::string refusal = {};  // of the last one
};
MeshSpace meshes_in_space(const Model& model, int32_t ranks,
                          int32_t ranks_per_node, const MeshLimits& limits);

// The ways to divide an iteration's tokens: micro-batches have 1, 2, 4, … whole
// sequences. A rank has at least one sequence.
std::vector<BatchSplit> batch_splits(int64_t global_batch, int64_t length,
                                     int32_t homes, const MeshLimits& limits);

// The sizes for `homes` ranks under these limits; `fixed` is the limits' `zero`
// or `zero_experts`.
std::vector<ZeroSizes> sizes_in_space(int32_t homes, const MeshLimits& limits,
                                      const std::string& fixed);

// The kind of a layout: which axes it uses besides data parallelism or, with
// none of them, which ZeRO. "zero1", "zero2 or zero3", "hierarchical zero",
// "tp", "pp", "tp+pp", "ep", "tp+ep", "pp+ep", "tp+pp+ep"; in this order.
enum class LayoutKind {
  kZero1,
  kFullZero,
  kHierarchical,
  kTp,
  kPp,
  kTpPp,
  kEp,
  kTpEp,
  kPpEp,
  kTpPpEp,
};
inline constexpr int kNumLayoutKinds = 10;
std::string_view to_string(LayoutKind kind);
// Layouts of a fixed mesh differ by their ZeRO alone.
LayoutKind kind_of(const MeshChoice& choice, bool counts_axes = true);

// What exists but is not searched: "virtual pipeline stages", ….
std::vector<std::string> not_in_mesh_space();

}  // namespace canzona::sim

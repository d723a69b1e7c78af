// A layout (mesh_space.h) that is planned once and weighed with any
// micro-batches.
//
//   const LayoutPlan layout(question, choice);   // mesh, sizes and collectives
//   WeighedMesh one = layout.weigh(choice, batch, activations);
//
// Of a plan only what iterations and memory need is kept. What a memory cap
// leaves is used to gather more modules ahead, as in any plan. Values; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/sim/mesh_search.h"

namespace canzona::sim {

// A plan without decisions: model, mesh and options.
Plan shape_of(const MeshQuestion& question, const Mesh& mesh);

class LayoutPlan {
 public:
  // `cap` limits what the strategy decides; 0: nothing does. With
  // `activations` times are predicted only if the plan fits beside them.
  LayoutPlan(const MeshQuestion& question, const MeshChoice& choice,
             int64_t cap = 0, std::optional<int64_t> activations = {});

  bool has_times() const { return !iterations_.empty(); }
  bool fits(int64_t activations) const;
  int64_t least_bytes() const {  // of the fullest rank, without prefetch
    return memory_with(0, question_.gradients).total().value();
  }

  // Fills in time, memory, bytes and whether it fits.
  WeighedMesh weigh(const MeshChoice& choice, const MicroBatch& batch,
                    int64_t activations) const;
  // What a plan may take if activations take so much; 0: anything.
  int64_t left_of_cap(int64_t activations) const;
  // True if the strategy may decide otherwise to keep a cap.
  bool heeds_cap() const { return heeds_cap_; }

 private:
  struct Stage {
    RankMemory fullest = {};  // without prefetch
    std::vector<PoolSizes> pools = {};
  };

  void count_memory(const Plan& plan, const std::vector<RankCost>& costs);
  RankMemory memory_with(int32_t prefetch, DType gradients) const;

  const MeshQuestion& question_;
  std::vector<StageIteration> iterations_;
  std::vector<Stage> stages_;        // all of them
  std::vector<int32_t> held_slots_;  // beside pools, by iteration
  SlotBytes slots_ = {};
  double bucket_unevenness_ = 1;
  int64_t taken_ = 0;  // on the fullest rank, without prefetch
  int64_t saved_gradients_ = 0;
  bool chooses_prefetch_ = false;
  bool heeds_cap_ = true;
};

// The layout with these micro-batches; if it does not fit, planned once more
// under the cap. A layout without times is planned again if it fits; if it does
// not, only memory is filled in.
WeighedMesh weigh_layout(const LayoutPlan& layout, const MeshQuestion& question,
                         const MeshChoice& choice, const MicroBatch& batch,
                         int64_t activations);

// Fills in the parts of the iteration, tokens per second and share of peak.
void describe(const MeshQuestion& question, WeighedMesh& weighed);

}  // namespace canzona::sim

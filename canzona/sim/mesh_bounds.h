// Lower bounds of layouts (mesh_space.h): what a layout needs at least, without
// a plan.
//
//   const TensorFacts facts(question);          // once
//   const MeshBounds bounds(question, facts, mesh);
//   const MeshPace pace = bounds.pace(choice);  // by micro-batch
//   bounds.memory(choice.dense, choice.experts) + pace.activations;
//   bounds.seconds(pace, bounds.ops(choice.dense, …), …);
//
// Time: the threads of the simulated rank (plan_iteration.h) execute their
// operations in a fixed order, each for at least the time of its bytes on the
// busiest port. The bound is the end of an iteration if ports, slots and
// overlap delayed nothing else, or the time of all bytes on one port if that is
// longer. Memory: the mean over the ranks that share what is cut. No simulated
// iteration is shorter and no plan needs less, whatever the strategy decides.
// Values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/mesh_layout.h"

namespace canzona {

// The facts of a question that do not depend on the layout, by tensor.
struct TensorFacts {
  explicit TensorFacts(const MeshQuestion& question);

  std::vector<double> step_seconds;  // of its matrices, mean over a period
  std::vector<int64_t> state_bytes;  // of its matrices, or of AdamW
  bool spreads = true;  // homes receive only sums of what they keep
};

// The time for which an operation holds a rank's ports at least, by leg; of
// sums the receiving ports, of new parameters the sending ones.
struct PortTime {
  double intra = 0;
  double inter = 0;
};
struct OpTime {
  std::array<PortTime, 2> legs = {};
};
inline constexpr int kNumModuleOps = 4;  // gather, scatter, sum, publish
using ModuleOps = std::array<OpTime, kNumModuleOps>;

// Of dense tensors or of experts: by stage that is looked at, and by class of
// modules.
using StageOps = std::vector<std::vector<ModuleOps>>;

// What depends on micro-batch and recomputation alone.
struct MeshPace {
  int64_t num_micro_batches = 1;
  int64_t activations = 0;  // bytes
  MicroBatch batch = {};
  // By stage that is looked at, and by use in a micro-batch.
  std::vector<std::vector<double>> use_seconds;
};

class MeshBounds {
 public:
  MeshBounds(const MeshQuestion& question, const TensorFacts& facts,
             const Mesh& mesh);

  const Mesh& mesh() const { return mesh_; }
  bool has_experts() const { return has_experts_; }

  std::vector<MeshPace> paces(const std::vector<MeshChoice>& settings) const;
  // Bytes of the fullest rank without activations; sizes with z1 = 0 count
  // nothing.
  int64_t memory(const ZeroSizes& dense, const ZeroSizes& experts) const;
  double step_seconds(const ZeroSizes& dense, const ZeroSizes& experts) const;

  // The sums and publications of a part depend on whether experts are planned
  // apart from it.
  bool is_apart(const ZeroSizes& dense, const ZeroSizes& experts) const;
  // True if groups of these sizes go in two levels with Reach::kPerNode.
  bool has_two_levels(const ZeroSizes& sizes, bool experts, bool apart) const;
  StageOps ops(const ZeroSizes& sizes, bool experts, bool apart,
               Reach reach) const;
  // Operations that are null are not counted.
  double seconds(const MeshPace& pace, const StageOps* dense,
                 const StageOps* experts, double step) const;

 private:
  // Tensors of a module that are alike.
  struct Shards {
    int64_t rows = 0, cols = 0;
    int64_t count = 0;
    bool trained = true;
    friend auto operator<=>(const Shards&, const Shards&) = default;
  };
  // Modules with the same tensors: dense ones, and experts of ep rank 0.
  using ModuleClass = std::array<std::vector<Shards>, 2>;
  // Sums over the tensors of a stage: a shard of each.
  struct Kept {
    int64_t all = 0, trained = 0;      // elements
    int64_t slot = 0, large_slot = 0;  // of pools, as in PoolSizes
    int64_t state_bytes = 0;           // a tp rank's even share
    double step_seconds = 0;           // likewise
  };
  struct Stage {
    int32_t number = 0;
    std::vector<ModuleUse> uses;        // of one micro-batch
    std::vector<int32_t> module_class;  // by module; -1: in other stages
    std::array<Kept, 2> kept = {};      // dense, experts of an ep rank
  };
  // Tensors that are cut over the same ranks (plan.h), seen from the stage's
  // first rank.
  struct Part {
    int32_t stage = 0;
    ZeroSizes sizes = {};
    bool experts = false;
    bool apart = false;
    Reach reach = Reach::kDirect;
    int32_t step = 1;  // ranks between two of its homes
    int32_t homes = 1;
  };
  struct Group {
    int64_t intra = 0, inter = 0;  // other ranks of the group
    int64_t inside = 1;            // ranks on the first one's node
  };

  void classify(const TensorFacts& facts);
  std::vector<double> use_seconds(const Stage& stage,
                                  const MicroBatch& batch) const;
  Group group(int32_t stage, int32_t step, int32_t count) const;
  double elements(const ModuleClass& of, bool experts, int32_t places,
                  bool trained) const;
  PortTime over(const Group& group, double bytes, double messages) const;
  OpTime module_op(const Group& group, double bytes, bool gathered,
                   Reach reach) const;
  ModuleOps module_ops(const Part& part, const ModuleClass& of) const;
  void add_step_ops(const Part& part, double run, ModuleOps& out) const;
  void add_two_level_ops(const Part& part, double run, ModuleOps& out) const;
  void add_shared_ops(const Part& part, double elements, ModuleOps& out) const;
  double stage_seconds(size_t stage, const MeshPace& pace,
                       const StageOps* dense, const StageOps* experts,
                       double step) const;

  const MeshQuestion& question_;
  Mesh mesh_;
  Links links_;
  bool has_experts_ = false;
  bool spreads_ = true;
  std::vector<Stage> stages_;
  std::vector<ModuleClass> classes_;
};

}  // namespace canzona

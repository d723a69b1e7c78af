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
#include <set>
#include <vector>

#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/mesh_layout.h"

namespace canzona {

// The facts of a question that do not depend on the layout, by tensor.
struct TensorFacts {
  explicit TensorFacts(const MeshQuestion& question);

  std::vector<double> step_seconds;  // of its matrices, mean over a period
  // Of a matrix that is the whole tensor and is computed by one rank; else 0.
  std::vector<double> alone;
  std::vector<int64_t> state_bytes;  // of its matrices, or of AdamW
  bool spreads = true;  // homes receive only sums of what they keep
};

// The time for which an operation holds a rank's ports at least, by leg; of
// sums the receiving ports, of new parameters the sending ones.
struct PortTime {
  double intra = 0;
  double inter = 0;

  double longest() const { return intra > inter ? intra : inter; }
  friend PortTime operator+(const PortTime& a, const PortTime& b) {
    return {a.intra + b.intra, a.inter + b.inter};
  }
};
struct OpTime {
  std::array<PortTime, 2> legs = {};

  PortTime ports() const { return legs[0] + legs[1]; }
  friend OpTime operator+(const OpTime& a, const OpTime& b) {
    return {{a.legs[0] + b.legs[0], a.legs[1] + b.legs[1]}};
  }
};
inline constexpr int kNumModuleOps = 4;
using ModuleOps = std::array<OpTime, kNumModuleOps>;

// Of dense tensors or of experts, on a stage.
struct StageOps {
  std::vector<ModuleOps> modules;  // by class
  // Sums and publications of buckets that span modules, all of them.
  PortTime sums = {}, publications = {};
  // True if buckets, and so latencies, are fewer than modules.
  bool spans_modules = false;
};

// Modules that are gathered or scattered at once.
struct PoolSlots {
  size_t gathers = 1;
  size_t scatters = 1;
};

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
  // By stage that is looked at.
  std::vector<StageOps> ops(const ZeroSizes& sizes, bool experts, bool apart,
                            Reach reach) const;
  // Slots of pools at most, if what the memory bound leaves of the cap is used
  // to gather ahead.
  PoolSlots slots(const ZeroSizes& dense, const ZeroSizes& experts,
                  int64_t activations) const;

  // Operations that are null are not counted. With slots the bound is tighter,
  // but takes as long as there are micro-batches.
  double seconds(const MeshPace& pace, const std::vector<StageOps>* dense,
                 const std::vector<StageOps>* experts, double step,
                 const PoolSlots* slots = nullptr) const;

 private:
  enum Op { kGather, kScatter, kSum, kPublish };  // of a module

  // Tensors of a module that are alike.
  struct Shards {
    int64_t rows = 0, cols = 0;
    int64_t count = 0;
    bool trained = true;
    bool matrix = false;  // kept whole by one home
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
  // A matrix that one rank computes, and a shard of it.
  struct Largest {
    double seconds = 0;
    int64_t rows = 0, cols = 0;
    int32_t planes = 1;  // tp ranks that send a shard
    friend auto operator<=>(const Largest&, const Largest&) = default;
  };
  struct Stage {
    int32_t number = 0;
    std::vector<ModuleUse> uses;        // of one micro-batch
    std::vector<int32_t> module_class;  // by module; -1: in other stages
    std::array<Kept, 2> kept = {};      // dense, experts of an ep rank
    std::array<std::set<Largest>, 2> matrices = {};
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
  double largest_slice(const ModuleClass& of, bool experts,
                       int32_t places) const;
  double alone_seconds(const Largest& matrix, const ZeroSizes& sizes) const;
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
                       const std::vector<StageOps>* dense,
                       const std::vector<StageOps>* experts, double step,
                       const PoolSlots* slots = nullptr) const;

  const MeshQuestion& question_;
  Mesh mesh_;
  Links links_;
  bool has_experts_ = false;
  bool spreads_ = true;
  std::vector<Stage> stages_;
  std::vector<ModuleClass> classes_;
};

}  // namespace canzona

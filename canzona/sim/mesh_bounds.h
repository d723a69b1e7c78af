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

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/mesh_layout.h"

namespace canzona::sim {

// The facts of a question that do not depend on the layout. Vectors are by
// tensor of the outline.
struct TensorFacts {
  explicit TensorFacts(const MeshQuestion& question);

  // The model with one expert of each layer, which stands for all of them; the
  // whole model if experts of a layer differ.
  Model outline;
  int32_t experts_alike = 1;    // experts for which one of the outline stands
  std::vector<double> weights;  // weights_per_token() of the whole model
  std::vector<double> step_seconds;  // of its matrices, mean over a period
  // Of a matrix that is the whole tensor and is computed by one rank; else 0.
  std::vector<double> alone;
  std::vector<int64_t> state_bytes;  // of its matrices, or of AdamW
  bool spreads = true;  // homes receive only sums of what they keep

 private:
  void outline_experts(const Model& model);
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
  friend PortTime operator*(double times, const PortTime& a) {
    return {times * a.intra, times * a.inter};
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

// The stages that are looked at: the first, a middle one and the last.
inline constexpr size_t kMostStages = 3;
using BytesByStage = std::array<int64_t, kMostStages>;
using SecondsByStage = std::array<double, kMostStages>;
inline int64_t fullest(const BytesByStage& dense, const BytesByStage& experts) {
  int64_t most = 0;
  for (size_t s = 0; s < kMostStages; ++s)
    most = std::max(most, dense[s] + experts[s]);
  return most;
}

// The least time that an iteration keeps a rank's ports busy, by stage: in a
// micro-batch, in sums before the step and in publications after it.
struct PortLoad {
  PortTime moved = {}, summed = {}, sent = {};
};
using LoadByStage = std::array<PortLoad, kMostStages>;

// What depends on micro-batch and recomputation alone.
struct MeshPace {
  int64_t num_micro_batches = 1;
  int64_t activations = 0;  // bytes
  MicroBatch batch = {};
  // By stage that is looked at, and by use in a micro-batch.
  std::vector<std::vector<double>> use_seconds;
  SecondsByStage pass_seconds = {};  // their sums
};

class MeshBounds {
 public:
  // Question and facts must outlive the bounds.
  MeshBounds(const MeshQuestion& question, const TensorFacts& facts,
             const Mesh& mesh);

  const Mesh& mesh() const { return mesh_; }
  bool has_experts() const { return has_experts_; }

  std::vector<MeshPace> paces(const std::vector<MeshChoice>& settings) const;
  // Bytes of a rank without activations, of dense tensors or of experts; sizes
  // with z1 = 0 count nothing.
  BytesByStage memory(const ZeroSizes& sizes, bool experts) const;
  // Returns the bytes of the fullest rank.
  int64_t memory(const ZeroSizes& dense, const ZeroSizes& experts) const;
  SecondsByStage step_seconds(const ZeroSizes& dense,
                              const ZeroSizes& experts) const;

  // The sums and publications of a part depend on whether experts are planned
  // apart from it.
  bool is_apart(const ZeroSizes& dense, const ZeroSizes& experts) const;
  // True if groups of these sizes go in two levels with Reach::kPerNode.
  bool has_two_levels(const ZeroSizes& sizes, bool experts, bool apart) const;
  // By stage that is looked at.
  std::vector<StageOps> ops(const ZeroSizes& sizes, bool experts, bool apart,
                            Reach reach) const;
  // Returns how long these operations hold the ports.
  LoadByStage loads(const std::vector<StageOps>& ops) const;
  // Slots of pools at most, if what the memory bound leaves of the cap is used
  // to gather ahead.
  PoolSlots slots(const ZeroSizes& dense, const ZeroSizes& experts,
                  int64_t activations) const;

  // The time of compute alone or of all bytes on one port, whichever is longer:
  // a bound that is found at once.
  double busiest_seconds(const MeshPace& pace, const LoadByStage& dense,
                         const LoadByStage& experts,
                         const SecondsByStage& step) const;
  // Operations that are null are not counted. With slots the bound is tighter.
  double seconds(const MeshPace& pace, const std::vector<StageOps>* dense,
                 const std::vector<StageOps>* experts,
                 const SecondsByStage& step,
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
    int64_t all = 0, trained = 0;  // elements
    // Sizes of pools (PoolSizes). Experts of a layer may be in one slot with
    // its dense tensors, so those of dense tensors are what this takes in
    // addition.
    int64_t slot = 0, large_slot = 0;
    int64_t staging = 0;
    int64_t state_bytes = 0;  // a tp rank's even share
    double step_seconds = 0;  // likewise
  };
  // The part of a module that a rank has.
  struct Pooled {
    int64_t elements = 0, trained = 0, tensors = 0;
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
    // By class: uses, uses that complete a gradient, modules.
    std::vector<std::array<double, 3>> counts = {};
    std::array<Kept, 2> kept = {};  // dense, experts of an ep rank
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

  void classify();
  void count_uses(Stage& stage) const;
  static void size_pools(const std::vector<Pooled>& dense,
                         const std::vector<Pooled>& experts, Stage& stage);
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
  const TensorFacts& facts_;
  Mesh mesh_;
  Links links_;
  bool has_experts_ = false;
  bool is_tied_ = false;
  std::vector<Stage> stages_;
  std::vector<ModuleClass> classes_;
};

}  // namespace canzona::sim

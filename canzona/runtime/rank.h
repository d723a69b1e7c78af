// Everything one rank holds while it runs a part: its memory, and access to its
// parameters from host memory; internal to this folder.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/transport.h"
#include "canzona/comm/wire_ops.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/updates.h"
#include "canzona/rules/optimizer.h"
#include "canzona/runtime/engine_lanes.h"
#include "canzona/runtime/groups.h"
#include "canzona/runtime/options.h"
#include "canzona/runtime/step/gradient_check.h"

namespace canzona::runtime {

// The memory of one rank, reserved once and never grown: exactly the bytes that
// the plan predicted.
//
//   RankStore store(part, layout, kept, updates, slot_elements, pools, engine);
//   Shard shard = store.shard(kept.matrices[0], piece, states);
//
// Memory is the engine's. If `world` is not null, memory that collectives
// access may come from the library behind it (Communicator::allocate). Views
// are valid as long as the store.

// One zero-initialized block of memory.
class ReservedBlock {
 public:
  ReservedBlock() = default;
  // Takes memory that collectives transfer fast, if `world` is not null and
  // provides it.
  ReservedBlock(Engine& engine, int64_t bytes, Communicator* world = nullptr);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  std::span<std::byte> all() const {
    return {data_.get(), static_cast<size_t>(bytes_)};
  }

 private:
  // The library's memory may be released only once nothing uses it any more.
  struct Release {
    void operator()(std::byte* memory) const;
    Engine* engine;
    Communicator* world;  // null: the engine's own memory
  };
  std::unique_ptr<std::byte, Release> data_{nullptr, Release{nullptr, nullptr}};
  int64_t bytes_ = 0;
};

// A read-only run.
inline ConstRun const_run(const float* data) { return run_of(data); }

class RankStore {
 public:
  RankStore(const PlanPart& part, const RankLayout& layout, const Kept& kept,
            const UpdatePlan& updates, int64_t slot_elements,
            int64_t room_bytes, const PoolSizes& pools, Engine& engine,
            Communicator* world = nullptr);

  // Returns the memory that collectives access, for their groups to register.
  GroupMemory group_memory(bool parameters_alike, bool gradients_alike) const;

  float* gradients() const { return as_floats(gradients_); }
  // The copy that forward and backward use: fp32, or bf16.
  bool rounded() const { return rounded_; }
  int64_t parameter_bytes() const { return rounded_ ? 2 : 4; }
  std::byte* parameters() const { return parameters_.data(); }
  std::byte* parameter(int64_t element) const {
    return parameters_.data() + element * parameter_bytes();
  }

  // The weights that rules update, of a piece of a matrix from its element `at`
  // on, or of AdamW's elements. They are the parameters themselves where those
  // are fp32.
  StoredWeights weights(const Piece& piece, int64_t at = 0) const {
    return weights_at(piece.parameter + at, piece.kept + at);
  }
  StoredWeights weights(const KeptElements& elements) const {
    return weights_at(elements.parameter, master_of_elements_ + elements.kept);
  }
  // `master`: the element of all masters.
  StoredWeights weights_at(int64_t parameter, int64_t master) const;
  bool keeps_remainders() const { return form_ == MasterForm::kRemainder; }
  uint16_t* rounded_copy(int64_t element) const;

  float* states() const { return as_floats(states_); }
  float* slot(int64_t number) const {
    return as_floats(slots_) + number * slot_elements_;
  }

  // The memory in which teams exchange sums and factors.
  std::byte* rooms() const { return rooms_.data(); }

  // Pools for modules in transit: slots of whole tensors, and staging.
  const PoolSizes& pools() const { return pool_sizes_; }
  // Large slots are numbered after the others.
  std::byte* gather_slot(int64_t slot) const {
    return gather_pool_.data() +
           slot_at(slot, pool_sizes_.gather_slots) * parameter_bytes();
  }
  std::byte* parameter_staging() const {
    return gather_slot(pool_sizes_.gather_slots +
                       pool_sizes_.large_gather_slots);
  }
  float* scatter_slot(int64_t slot) const {
    return as_floats(scatter_pool_) + slot_at(slot, pool_sizes_.scatter_slots);
  }
  float* gradient_staging() const {
    return scatter_slot(pool_sizes_.scatter_slots +
                        pool_sizes_.large_scatter_slots);
  }

  // The reserved memory.
  RankMemory memory() const;

 private:
  int64_t slot_at(int64_t slot, int64_t num_usual) const {
    const int64_t usual = std::min(slot, num_usual);
    return usual * pool_sizes_.slot + (slot - usual) * pool_sizes_.large_slot;
  }
  static float* as_floats(const ReservedBlock& block) {
    return reinterpret_cast<float*>(block.data());
  }

  bool rounded_;
  MasterForm form_;
  int64_t master_of_elements_ = 0;
  int64_t slot_elements_ = 0;
  PoolSizes pool_sizes_;
  ReservedBlock parameters_, gradients_, master_, states_, slots_, rooms_;
  ReservedBlock gather_pool_, scatter_pool_;
};

// Adds its lifetime to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds)
      : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_)
            .count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_;
};

// An entry of the schedule as traces show it. The schedule must outlive it. The
// collective has the same label.
struct ShownEntry {
  const ScheduleEntry* entry = nullptr;
  SpanFacts span = {};

  Call call() const { return {.label = span.label}; }
};

struct Rank {
  // `world`: the ranks of this part, possibly part of another world.
  // `the_track`: that of compute, or null. `the_prefix`: for the names of
  // threads and groups.
  Rank(const PlanPart& the_part, Communicator& world, Engine& the_engine,
       const RuntimeOptions& the_options, Track* the_track,
       const std::string& the_prefix);

  const PlanPart& part;
  const RuntimeOptions options;
  Engine& engine;
  StepEngines engines;
  const EngineWireOps engine_ops;
  const int32_t world_rank;  // in the plan
  const int32_t known_as;    // among all ranks, for errors
  const std::string prefix;
  const Coordinates at;  // in the plan's grid; its rank in one replica
  const RankLayout layout;
  const ModuleTable modules;
  const Kept kept;
  const std::unique_ptr<RuleFacts> facts;  // of the plan's rule
  const RuleSet rules;
  const std::vector<Round> rounds;
  const RankEntries entries;
  const UpdatePlan updates;
  const RankStore store;
  // Compute's own lane, if the engine is asynchronous and these ranks can order
  // their collectives; else null, and calls have ended when they return.
  const std::unique_ptr<Lane> compute;
  const GroupLanes lanes;
  // Times lanes; null unless requested.
  struct Timed {
    Timed(Rank& rank, bool traced);
    LaneTimes times;
    LaneClock &compute, &gradients, &parameters;
    Track *compute_track = nullptr, *gradients_track = nullptr,
          *parameters_track = nullptr;
  };
  const std::unique_ptr<Timed> timed;
  Track* track = nullptr;
  RuntimeTimes times;
  // Of the step, by tensor of the part (StepSettings::row_factors).
  std::map<int32_t, std::span<const float>> row_factors;
  std::set<std::string> labels;
  std::vector<std::string_view> module_labels;
  Groups groups;  // last: its threads use the store

  const Tensor& tensor(int32_t number) const {
    return part.model.tensors[static_cast<size_t>(number)];
  }
  int32_t tensor_of(const KeptMatrix& matrix) const {
    return part.matrices[static_cast<size_t>(matrix.matrix)].tensor;
  }
  // How a tensor of this part is named in the check (step/gradient_check.h).
  int64_t nonfinite_code(int32_t number, bool own) const {
    return runtime::nonfinite_code(part.tensors[static_cast<size_t>(number)],
                                   known_as, own);
  }
  bool counts_shard(int32_t number) const {
    return canzona::counts_shard(part, at, number);
  }
  const WireOps& wire_ops() const {
    if (lanes.gradients != nullptr) return lanes.gradients->ops();
    if (options.wire_ops != nullptr) return *options.wire_ops;
    return engine_ops.is_host() ? cpu_wire_ops() : engine_ops;
  }
  // The track of another thread of this rank, or of the lane that replaces it;
  // null without a trace.
  Track* add_track(const std::string& name, const Lane* lane) const;
  // Text that lives as long as this object, and as the trace if there is one.
  std::string_view label(const std::string& text);
  std::string_view label_of(int32_t module) const {
    return module_labels[static_cast<size_t>(module)];
  }

  ShownEntry show(const ScheduleEntry& entry);
  std::vector<ShownEntry> show(const std::vector<ScheduleEntry>& list);

  const WireOps& ops_of(const Courier& courier) const {
    return courier.lane() != nullptr ? courier.lane()->ops() : wire_ops();
  }

  // Waits until the engine has finished all work issued to it.
  void settle() { engine.synchronize(); }
  // Called before passing memory that the engine may still write to a courier:
  // orders what is posted later after those writes.
  void settle(const Courier& courier);
  // Waits for all issued work, before memory is released.
  void drain() noexcept;
  // Adds the waits of compute's lane so far to `times`.
  void add_waits();

 private:
  friend class WaitWatch;
  struct LaneWait {
    int64_t begin, end;  // stamps of compute
    double* seconds;     // in `times`
  };

  const std::unique_ptr<Mark> edge_;
  std::deque<LaneWait> waits_;
};

// Makes compute wait for an exchange of the step, unless it has ended already.
void wait_in_step(Rank& rank, Work& work);

// Marks a wait of compute: adds its lifetime to one of the rank's times, and
// the time links were busy meanwhile. Where compute has a lane, the wait is
// that of the lane.
class WaitWatch {
 public:
  WaitWatch(Rank& rank, double& seconds);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

 private:
  struct OfHost {
    explicit OfHost(Rank& rank, double& seconds);
    Stopwatch watch;
    std::chrono::nanoseconds links, exchange;
  };

  Rank& rank_;
  double& seconds_;
  std::optional<OfHost> host_;
  int64_t begin_ = 0;
};

// Copies elements of `bytes` each as `copies` says, and in reverse.
inline void copy_there(const WireOps& ops, std::byte* to, const std::byte* from,
                       std::span<const ExtentCopy> copies, int64_t bytes) {
  for (const ExtentCopy& c : copies)
    ops.copy(to + c.to * bytes, from + c.from * bytes, c.count * bytes);
}
inline void copy_back(const WireOps& ops, std::byte* from, const std::byte* to,
                      std::span<const ExtentCopy> copies, int64_t bytes) {
  for (const ExtentCopy& c : copies)
    ops.copy(from + c.from * bytes, to + c.to * bytes, c.count * bytes);
}

// The reduced gradients of all parts in which a rank works.
GradientRuns gradient_runs(const std::vector<const Rank*>& ranks);

// Multiplies rows of weights that were just updated by Rank::row_factors, and
// rounds them again if forward uses rounded ones.
void scale_rows(Rank& rank, const KeptMatrix& matrix);
void scale_rows(Rank& rank, const KeptElements& elements);

// Adds the pieces of one kept matrix as shards.
void add_pieces(const Rank& rank, size_t kept, TensorBatch& batch);

// Throws UsageError if the tensor has no shard on this rank.
const FlatLayout::Shard& stored_shard(const Rank& rank,
                                      const FlatLayout& layout, int32_t tensor);

}  // namespace canzona::runtime
